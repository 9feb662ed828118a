"""Whether an exploit copies VecNormalize's statistics together with the policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.vec_env import VecNormalize

from rlcore import DistributionalPPO, apply_exploit
from rlverify import Observation, probe
from verification.probes.make import Make

ROLLOUT = 48


@probe("an-exploit-takes-the-normaliser-with-the-policy")
def an_exploit_takes_the_normaliser_with_the_policy(make: Make, seed: int) -> Sequence[Observation]:
    """Exploit with VecNormalize. Compare what receiver and source compute from raw observations."""
    source, target = _trained(make, seed, updates=2), _trained(make, seed + 1)
    apply_exploit(target, source.get_parameters(), {})
    theirs, own = _normalizer(source), _normalizer(target)
    raw = np.random.default_rng(seed).normal(0.0, 0.5, (16, 4)).astype(np.float32)
    weights = zip(source.policy.state_dict().values(), target.policy.state_dict().values(), strict=True)
    same = {
        "weights after the exploit": all(torch.equal(one, other) for one, other in weights),
        "observation statistics after the exploit": _equal_moments(theirs.obs_rms, own.obs_rms),
        "return statistics after the exploit": _equal_moments(theirs.ret_rms, own.ret_rms),
        "normalised observations after the exploit": np.array_equal(theirs.normalize_obs(raw), own.normalize_obs(raw)),
        "values of raw observations after the exploit": torch.equal(_values(source, raw), _values(target, raw)),
    }
    return [
        Observation(symptom, "the source's", "the source's" if holds else "different", holds)
        for symptom, holds in same.items()
    ]


def _trained(make: Make, seed: int, updates: int = 1) -> DistributionalPPO:
    model = make.model(seed, VecNormalize(make.envs(seed)), n_steps=16, batch_size=24)
    model.learn(updates * ROLLOUT)
    return model


def _normalizer(model: DistributionalPPO) -> Any:
    return model.get_vec_normalize_env()


def _equal_moments(one: Any, other: Any) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("mean", "var", "count"))


def _values(model: DistributionalPPO, raw: np.ndarray) -> torch.Tensor:
    """The values of raw observations through the model's own normaliser, with LSTM states of zero."""
    seen = torch.as_tensor(_normalizer(model).normalize_obs(raw))
    lstm = model.policy.lstm_actor
    zeros = torch.zeros(lstm.num_layers, len(raw), lstm.hidden_size)
    with torch.no_grad():
        return model.policy.predict_values(seen, (zeros, zeros), torch.ones(len(raw)))
