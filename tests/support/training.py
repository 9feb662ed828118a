"""Small real training runs that tests share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from rlcore import DistributionalPPO, ResumableEnv

SMALL: dict[str, Any] = {
    "n_steps": 16,
    "batch_size": 24,
    "n_epochs": 2,
    "n_quantiles": 8,
    "variance_gradient_scaling": True,
    "vgs_warmup_steps": 3,
    "policy_kwargs": {"lstm_hidden_size": 8, "net_arch": [8]},
    "seed": 0,
    "device": "cpu",
}


def make_envs(env_id: str = "CartPole-v1", n_envs: int = 3, *, normalize: bool = False, seed: int = 0) -> VecEnv:
    """Resumable classic-control environments, behind VecNormalize if asked."""
    envs: VecEnv = make_vec_env(env_id, n_envs=n_envs, seed=seed, wrapper_class=ResumableEnv)
    return normalized(envs) if normalize else envs


def normalized(envs: VecEnv) -> VecNormalize:
    """Behind VecNormalize, which takes the fractions of a Dict alone."""
    space = envs.observation_space
    if not isinstance(space, spaces.Dict):
        return VecNormalize(envs)
    return VecNormalize(envs, norm_obs_keys=[key for key, part in space.items() if part.dtype == np.float32])


def make_model(env: Any = None, policy: str = "MlpLstmPolicy", **settings: Any) -> DistributionalPPO:
    """A model that trains in a fraction of a second."""
    return DistributionalPPO(policy, make_envs() if env is None else env, **laid_over(SMALL, settings))


def laid_over(base: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """The settings in front of those of ``base``, which then has none of a scaler that is off."""
    scales = settings.get("variance_gradient_scaling", True)
    return {name: value for name, value in base.items() if scales or not name.startswith("vgs_")} | settings


def acting(step: int, action: Callable[[], object] = lambda: None, *, go_on: bool) -> Callable[..., bool]:
    """A callback that does one thing at a step of ``learn()``, then lets training go on or stops it."""
    steps = iter(range(1, 10**9))

    def callback(*_: object) -> bool:
        at_it = next(steps) == step
        if at_it:
            action()
        return go_on or not at_it

    return callback


def differing(left: Any, right: Any, path: str = "") -> list[str]:
    """Paths at which two nested states differ in any bit; empty if they are the same."""
    if isinstance(left, dict) and isinstance(right, dict):
        if set(left) != set(right):
            return [f"{path}: keys {sorted(map(str, set(left) ^ set(right)))}"]
        return [found for key in left for found in differing(left[key], right[key], f"{path}/{key}")]
    if isinstance(left, list | tuple) and isinstance(right, list | tuple) and len(left) == len(right):
        return [
            found for i, pair in enumerate(zip(left, right, strict=True)) for found in differing(*pair, f"{path}/{i}")
        ]
    if isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor):
        same = left.dtype == right.dtype and left.shape == right.shape and torch.equal(left, right)
        return [] if same else [path]
    return [] if type(left) is type(right) and left == right else [path]


def tensors_in(state: Any) -> list[torch.Tensor]:
    """Every tensor of a nested state."""
    if isinstance(state, torch.Tensor):
        return [state]
    items = state.values() if isinstance(state, dict) else state if isinstance(state, list | tuple) else ()
    return [tensor for item in items for tensor in tensors_in(item)]
