"""Sizes of Stable-Baselines3's algorithms that only cost time, and smaller ones with which a check takes seconds."""

from __future__ import annotations

from typing import Any, Final

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    SubprocVecEnv,
    VecCheckNan,
    VecEnv,
    VecMonitor,
    VecNormalize,
    VecTransposeImage,
)

SAMPLES: Final = 128
STEPS: Final = (5, 64)
"""The fewest and the most of a rollout; in between, as many as give `SAMPLES`."""
EPOCHS: Final = {"n_epochs": 2, "n_critic_updates": 2}
OFF_POLICY: Final = {
    "buffer_size": (4096, 1024),
    "batch_size": (64, 32),
    "learning_starts": (128, 64),
    "gradient_steps": (16, 8),
    "target_update_interval": (32, 16),
}
"""By name, the largest value that is left as it is, and the one in place of larger ones."""
MANY, FEW = 4, 2
"""Environments above which there are fewer, and how many then."""
CUTTABLE: Final = (VecNormalize, VecMonitor, VecTransposeImage, VecCheckNan)
"""Layers that work with any number of environments."""


def smaller_settings(model: BaseAlgorithm) -> dict[str, Any]:
    """Smaller sizes, by name of the argument; empty if all are small."""
    env = fewer(model.env) if model.env is not None and model.n_envs > MANY else None
    found: dict[str, Any] = {"env": env} if env is not None else {}
    n_envs = model.n_envs if env is None else FEW
    if isinstance(model, OnPolicyAlgorithm):
        return {**_shorter(model, n_envs), **found}
    if isinstance(model, OffPolicyAlgorithm):
        own = {name: small for name, (large, small) in OFF_POLICY.items() if getattr(model, name, 0) > large}
        if model.replay_buffer_class not in (ReplayBuffer, DictReplayBuffer, NStepReplayBuffer):
            own.pop("learning_starts", None)  # it may need whole episodes
        return {**own, **found}
    return found


def _shorter(model: OnPolicyAlgorithm, n_envs: int) -> dict[str, Any]:
    fewest, most = STEPS
    steps = min(most, max(SAMPLES // n_envs, fewest))
    if model.n_steps <= steps:
        return {}
    found = {"n_steps": steps, **{name: few for name, few in EPOCHS.items() if getattr(model, name, 0) > few}}
    batch, samples = getattr(model, "batch_size", None), steps * n_envs
    if batch is not None:
        found["batch_size"] = samples if batch >= model.n_steps * model.n_envs else min(batch, samples // 2)
    return {name: value for name, value in found.items() if value != getattr(model, name)}


def fewer(env: VecEnv) -> VecEnv | None:
    """The first environments of a vector, under the same wrappers; None if one of the layers is unknown."""
    if type(env) in CUTTABLE:
        inner = fewer(env.venv)  # type: ignore[attr-defined]
        return None if inner is None else _like(env, venv=inner)
    if type(env) is SubprocVecEnv:
        cut = ("remotes", "work_remotes", "processes")
        return _like(env, **{name: getattr(env, name)[:FEW] for name in cut})
    if type(env) is DummyVecEnv:
        made = DummyVecEnv([lambda each=each: each for each in env.envs[:FEW]])  # type: ignore[misc]
        return _like(env, **vars(made))
    return None


def _like(env: VecEnv, **changed: Any) -> VecEnv:
    found = object.__new__(type(env))
    own = {**vars(env), **changed, "num_envs": FEW}
    for name in ("_seeds", "_options", "reset_infos", "returns"):
        if name in own:
            own[name] = vars(env)[name][:FEW]
    vars(found).update(own)
    return found
