"""Training small enough to be repeated many times, and what is read off it."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final

from stable_baselines3.common.vec_env import VecEnv

from rlcore import DistributionalPPO, ResumeWarning, apply_exploit
from verification.probes.make import Make

N_ENVS: Final = 16
STEPS_OF_AN_UPDATE: Final = 16
"""Optimizer steps, which are the scaler's too: four passes over four minibatches."""

SETTINGS: Final[Mapping[str, Any]] = {
    "n_steps": 64,
    "batch_size": 256,
    "n_epochs": 4,
    "vgs_warmup_steps": 100,
    "return_scale": None,
}
"""Values in raw units, so that nothing but VGS speaks of what was measured; the published warm-up."""

LONGEST: Final = 500
"""Steps after which CartPole-v1 ends an episode."""


def untrained(
    make: Make, seed: int, wrapper: Callable[[VecEnv], VecEnv] = lambda envs: envs, **settings: Any
) -> DistributionalPPO:
    """A model of CartPole-v1 in ``N_ENVS`` environments.

    :param wrapper: what is put around them
    """
    merged = {**SETTINGS, **settings}
    if merged.get("variance_gradient_scaling") is False:
        merged.pop("vgs_warmup_steps")
    return make.model(seed, wrapper(make.envs(seed, n_envs=N_ENVS)), **merged)


def trained(make: Make, seed: int, updates: int, **settings: Any) -> DistributionalPPO:
    """A model after that many updates."""
    model = untrained(make, seed, **settings)
    model.learn(updates * model.n_steps * model.n_envs)
    return model


def update(model: DistributionalPPO) -> float:
    """One more rollout and one more update.

    :return: steps of the rollout for each episode that began in it, which is the return in CartPole; at most LONGEST
    """
    model.learn(model.n_steps * model.n_envs, reset_num_timesteps=False)
    begun = float(model.rollout_buffer.episode_starts.sum())
    return min(float(LONGEST), model.rollout_buffer.episode_starts.size / max(1.0, begun))


def saved(model: DistributionalPPO) -> bytes:
    """Everything that the run consists of: environments, generators and what was learnt."""
    file = io.BytesIO()
    model.save(file)
    return file.getvalue()


def resumed(make: Make, run: bytes, seed: int) -> DistributionalPPO:
    """The run where it stood; two of the same run go on alike."""
    return make.algorithm.load(io.BytesIO(run), env=make.envs(seed, n_envs=N_ENVS), device="cpu")


def after_exploit(
    make: Make, member: bytes, seed: int, learnt: Mapping[str, Any], hyperparams: Mapping[str, Any]
) -> DistributionalPPO:
    """The member where it stood, with what a source learnt and a fresh optimizer; what is missing is known here."""
    model = resumed(make, member, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResumeWarning)
        apply_exploit(model, learnt, hyperparams, optimizer_exploit_strategy="reset")
    return model
