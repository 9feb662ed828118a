"""The lag of the return scale under other conditions than those of `verification.experiments.returns`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlverify import experiment
from verification.experiments.returns import (
    STARTED,
    STILL,
    UPDATES,
    UPDATES_STILL,
    WARMED_IN,
    errors_of_updates,
    model_of,
)
from verification.experiments.second_environment import in_drift
from verification.probes.make import Make


@experiment("lag-of-the-return-scale-longer")
def longer(make: Make, seed: int) -> Mapping[str, float]:
    """In CartPole, over half and twice as many updates."""
    return lags(make, seed)


@experiment("lag-of-the-return-scale-drift")
def in_the_second_environment(make: Make, seed: int) -> Mapping[str, float]:
    """In Drift."""
    return lags(in_drift(make), seed)


@experiment("lag-of-the-return-scale-settings")
def under_other_settings(make: Make, seed: int) -> Mapping[str, float]:
    """With a policy that does not change, under a faster decay and with shorter rollouts."""
    settings: dict[str, dict[str, Any]] = {
        "decay 0.2": {"return_scale_decay": 0.2},
        "rollouts of 64": {"n_steps": 4, "batch_size": 64},
    }
    return {
        f"bias under an unchanging policy, {name}": float(
            np.mean(errors_of_updates(model_of(make, seed, "snapshot", **STILL, **own), UPDATES_STILL)[WARMED_IN:])
        )
        for name, own in settings.items()
    }


def lags(make: Make, seed: int) -> Mapping[str, float]:
    """The bias of targets from a run of twice the length, in several of its parts."""
    learning = errors_of_updates(model_of(make, seed, "snapshot"), 2 * UPDATES)
    still = errors_of_updates(model_of(make, seed, "snapshot", **STILL), 2 * UPDATES_STILL)
    parts = {
        "bias while learning, half": learning[STARTED : UPDATES // 2],
        "bias while learning": learning[STARTED:UPDATES],
        "bias while learning, double": learning[STARTED:],
        "bias under an unchanging policy, at the start": still[STARTED:WARMED_IN],
        "bias under an unchanging policy": still[WARMED_IN:UPDATES_STILL],
        "bias under an unchanging policy, later": still[UPDATES_STILL:],
    }
    return {name: float(np.mean(errors)) for name, errors in parts.items()}
