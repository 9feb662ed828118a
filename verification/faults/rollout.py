"""Known bugs in collecting rollouts and in their LSTM states."""

from __future__ import annotations

from typing import Any

import torch
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from torch import Tensor, nn

from rlverify import fault, healthy


@fault(
    "fnd-20-values-after-the-step",
    target="rlcore.ppo.policy:DistributionalRecurrentPolicy.forward",
    pins="f72910534deb7ee4",
)
def values_after_the_step(
    self: Any, obs: Tensor, lstm_states: RNNStates, episode_starts: Tensor, deterministic: bool = False
) -> tuple[Tensor, Tensor, Tensor, RNNStates]:
    """Evaluate the critics again, from the LSTM state after this observation."""
    step = healthy("fnd-20-values-after-the-step")
    actions, _, log_prob, after = step(self, obs, lstm_states, episode_starts, deterministic)
    with torch.random.fork_rng(devices=[]):
        _, values, _, _ = step(self, obs, after, torch.zeros_like(episode_starts), deterministic)
    return actions, values, log_prob, after


@fault(
    "fnd-39-memory-across-episodes",
    target="rlcore.ppo.policy:DistributionalRecurrentPolicy._process_sequence",
    pins="7e982b28216d2e74",
)
def memory_across_episodes(
    features: Tensor, lstm_states: tuple[Tensor, Tensor], episode_starts: Tensor, lstm: nn.LSTM
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Do not reset the LSTM states where an episode starts."""
    process = healthy("fnd-39-memory-across-episodes")
    outputs, states = process(features, lstm_states, torch.zeros_like(episode_starts), lstm)
    return outputs, states
