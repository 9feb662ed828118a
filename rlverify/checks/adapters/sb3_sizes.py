"""Sizes of Stable-Baselines3's algorithms that only cost time, and smaller ones with which a check takes seconds."""

from __future__ import annotations

from typing import Any, Final

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

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


def smaller_settings(model: BaseAlgorithm) -> dict[str, Any]:
    """Smaller sizes, by name of the argument; empty if all are small."""
    if isinstance(model, OnPolicyAlgorithm):
        return _shorter(model)
    found = {name: small for name, (large, small) in OFF_POLICY.items() if getattr(model, name, 0) > large}
    if getattr(model, "replay_buffer_class", None) not in (ReplayBuffer, DictReplayBuffer, NStepReplayBuffer):
        found.pop("learning_starts", None)  # it may need whole episodes
    return found if isinstance(model, OffPolicyAlgorithm) else {}


def _shorter(model: OnPolicyAlgorithm) -> dict[str, Any]:
    fewest, most = STEPS
    steps = min(most, max(SAMPLES // model.n_envs, fewest))
    if model.n_steps <= steps:
        return {}
    found = {"n_steps": steps, **{name: few for name, few in EPOCHS.items() if getattr(model, name, 0) > few}}
    batch, samples = getattr(model, "batch_size", None), steps * model.n_envs
    if batch is not None:
        found["batch_size"] = samples if batch >= model.n_steps * model.n_envs else min(batch, samples // 2)
    return {name: value for name, value in found.items() if value != getattr(model, name)}
