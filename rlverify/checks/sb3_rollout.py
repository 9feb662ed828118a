"""What the rollout buffers and the policies of on-policy algorithms hold: log probabilities, advantages, states."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from rlverify.checks.adapter import NotSupportedError


def _on_policy(model: BaseAlgorithm) -> OnPolicyAlgorithm:
    if not isinstance(model, OnPolicyAlgorithm):
        raise NotSupportedError(f"{type(model).__name__} has no rollout buffer")
    return model


@contextmanager
def without_training(model: BaseAlgorithm) -> Iterator[None]:
    """Inside of the block, ``learn()`` collects rollouts and leaves the parameters as they are."""
    _on_policy(model)
    vars(model)["train"] = _nothing
    try:
        yield
    finally:
        del vars(model)["train"]


def _nothing() -> None:
    """Train nothing."""


def log_probs(model: BaseAlgorithm) -> tuple[Any, Any]:
    """The stored and the evaluated log probabilities of the samples in the rollout buffer."""
    algorithm = _on_policy(model)
    algorithm.policy.set_training_mode(True)  # as train() does
    stored, evaluated = [], []
    data: Any  # recurrent ones have a mask
    for data in algorithm.rollout_buffer.get(getattr(algorithm, "batch_size", None)):
        with torch.no_grad():
            found = _evaluated(algorithm, data)
        kept = data.mask > 0 if hasattr(data, "mask") else torch.ones_like(found, dtype=torch.bool)
        stored.append(data.old_log_prob[kept].numpy(force=True))
        evaluated.append(found[kept].numpy(force=True))
    return np.concatenate(stored), np.concatenate(evaluated)


def _evaluated(model: OnPolicyAlgorithm, data: Any) -> torch.Tensor:
    """The log probabilities of one minibatch, computed as ``train()`` computes them."""
    actions = data.actions.long().flatten() if isinstance(model.action_space, spaces.Discrete) else data.actions
    more = {"action_masks": data.action_masks} if hasattr(data, "action_masks") else {}
    if hasattr(data, "lstm_states"):
        more = {"lstm_states": data.lstm_states, "episode_starts": data.episode_starts}
    found: torch.Tensor = model.policy.evaluate_actions(data.observations, actions, **more)[1]
    return found


def advantages(model: BaseAlgorithm) -> tuple[Any, Any, Any]:
    """Returns, values and advantages of the last rollout."""
    buffer = _on_policy(model).rollout_buffer
    return buffer.returns, buffer.values, buffer.advantages


def recurrent_outputs(model: BaseAlgorithm, observations: Any, episode_starts: Any) -> Any:
    """Values, deterministic actions and their log probabilities, by step and environment."""
    policy: Any = model.policy
    if not hasattr(policy, "lstm_actor"):
        raise NotSupportedError(f"{type(policy).__name__} is not recurrent")
    from sb3_contrib.common.recurrent.type_aliases import RNNStates

    policy.set_training_mode(False)
    lstm = policy.lstm_actor
    empty = torch.zeros(lstm.num_layers, episode_starts.shape[1], lstm.hidden_size, device=model.device)
    states, found = RNNStates((empty, empty), (empty, empty)), []
    for step, starts in enumerate(episode_starts):
        seen = {key: each[step] for key, each in observations.items()} if isinstance(observations, dict) else None
        observation = policy.obs_to_tensor(seen if seen is not None else observations[step])[0]
        begins = torch.as_tensor(starts, dtype=torch.float32, device=model.device)
        with torch.no_grad():
            actions, values, log_prob, states = policy(observation, states, begins, deterministic=True)
        columns = [each.reshape(len(starts), -1).to(torch.float32) for each in (values, actions, log_prob)]
        found.append(torch.cat(columns, dim=1).numpy(force=True))
    return np.stack(found)
