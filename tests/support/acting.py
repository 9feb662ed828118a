"""Observations in sequences, and what a trained model does with them."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlcore import DistributionalPPO

STEPS = 40
STARTS = np.arange(STEPS) % 15 == 0
RAW = np.random.default_rng(0).normal([1.0, -20.0, 300.0], [0.1, 5.0, 40.0], (STEPS, 3)).astype(np.float32)
"""Observations on scales that a policy behind VecNormalize would take for something else."""


def expected_actions(model: DistributionalPPO, observations: Any, starts: Any = STARTS) -> Any:
    """What the model itself does, behind its own normaliser."""
    actions, state = [], None
    normalizer = model.get_vec_normalize_env()
    for observation, start in zip(observations, starts, strict=True):
        seen = observation if normalizer is None else normalizer.normalize_obs(observation)
        action, state = model.predict(seen, state, np.atleast_1d(start), deterministic=True)
        actions.append(action)
    return np.stack(actions)
