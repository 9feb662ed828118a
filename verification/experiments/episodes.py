"""Whole episodes of a trained policy, and what its critics say of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor

from rlcore import DistributionalPPO

Normalise: TypeAlias = Callable[[Any], Any]


def as_it_is(observations: Any) -> Any:
    """No normalisation."""
    return observations


@dataclass(frozen=True)
class Listener:
    """A policy that hears of every observation, with a memory of its own.

    :param normalise: what is done to raw observations before the policy sees them
    """

    model: DistributionalPPO
    normalise: Normalise = as_it_is

    def silent(self, n_envs: int) -> RNNStates:
        """The memory of one that has heard nothing."""
        lstm = self.model.policy.lstm_actor
        zeros = torch.zeros(lstm.num_layers, n_envs, lstm.hidden_size)
        return RNNStates((zeros, zeros), (zeros, zeros))

    def hear(self, observations: Any, memory: RNNStates, starts: Tensor) -> tuple[Tensor, Tensor, RNNStates]:
        """
        :param starts: 1 where an episode starts, shape (n_envs,)
        :return: probabilities of the actions, (n_envs, n_actions); outputs of the critics, (n_envs, n_critics,
            n_outputs); the memory after it
        """
        policy: Any = self.model.policy  # upstream types its parts as unions, of which these are the simple ones
        seen = torch.as_tensor(self.normalise(observations), dtype=torch.float32)
        distribution, actor = policy.get_distribution(seen, memory.pi, starts)
        features = policy.extract_features(seen, policy.vf_features_extractor)
        latent, critic = policy._process_sequence(features, memory.vf, starts, policy.lstm_critic)
        outputs = policy.value_net(policy.mlp_extractor.forward_critic(latent))
        return distribution.distribution.probs, outputs, RNNStates(actor, critic)


@dataclass(frozen=True)
class Episodes:
    """What happened, step by step.

    :param model: whose critics the outputs come from
    :param probabilities: of the actions, by each listener, (steps, listeners, n_envs, n_actions)
    :param outputs: of the critics, by each listener, (steps, listeners, n_envs, n_critics, n_outputs)
    :param rewards: (steps, n_envs)
    :param ends: whether the step ends an episode, (steps, n_envs)
    :param counts: whether the step belongs to the episodes that were asked for, (steps, n_envs)
    """

    model: DistributionalPPO
    probabilities: Tensor
    outputs: Tensor
    rewards: Tensor
    ends: Tensor
    counts: Tensor

    @property
    def mean_return(self) -> float:
        """Undiscounted, of an episode."""
        return float(self.rewards[self.counts].sum() / (self.ends & self.counts).sum())

    def returns(self) -> Tensor:
        """Discounted, from each step to the end of its episode; of the steps that count, (n,)."""
        returns, ahead = torch.zeros_like(self.rewards), torch.zeros_like(self.rewards[0])
        for step in reversed(range(len(self.rewards))):
            ahead = self.rewards[step] + self.model.gamma * torch.where(self.ends[step], 0.0, ahead)
            returns[step] = ahead
        return returns[self.counts]

    def critic_values(self, listener: int) -> Tensor:
        """What each critic says; of the steps that count, (n, n_critics)."""
        return self.model.policy.values.mean(self.outputs[:, listener][self.counts])

    def values(self, listener: int) -> Tensor:
        """What the smaller critic says; of the steps that count, (n,)."""
        return self.critic_values(listener).amin(dim=-1)

    def value_loss(self, listener: int) -> float:
        """The loss that training would have of these steps, whose returns are known to their end."""
        outputs = self.outputs[:, listener][self.counts]
        unclipped = torch.zeros(outputs.shape[:2])
        return float(self.model.policy.values.loss(outputs, self.returns(), unclipped, None))

    def share_of_decisions_that_differ(self) -> float:
        """How often the second listener finds another action the most probable than the first, in [0, 1]."""
        first, second = (self.probabilities[:, i][self.counts].argmax(dim=-1) for i in (0, 1))
        return float((first != second).double().mean())


def first_episodes(envs: VecEnv, listeners: Sequence[Listener], episodes: int, seed: int) -> Episodes:
    """The first episodes of every environment. The first listener acts; the others hear what it sees.

    :param episodes: of each environment
    :param seed: of the actions
    """
    generator = torch.Generator().manual_seed(seed)
    observations, starts = envs.reset(), torch.ones(envs.num_envs)
    memories = [listener.silent(envs.num_envs) for listener in listeners]
    left = torch.full((envs.num_envs,), episodes)
    steps: list[tuple[Tensor, ...]] = []
    while bool((left > 0).any()):
        with torch.no_grad():
            heard = [each.hear(observations, memory, starts) for each, memory in zip(listeners, memories, strict=True)]
        probabilities, outputs, memories = (list(parts) for parts in zip(*heard, strict=True))
        actions = torch.multinomial(probabilities[0], 1, generator=generator).flatten()
        observations, rewards, dones, _ = envs.step(actions.numpy())
        ends = torch.as_tensor(dones)
        steps.append((torch.stack(probabilities), torch.stack(outputs), torch.as_tensor(rewards), ends, left > 0))
        left, starts = left - ends.long(), ends.float()
    return Episodes(listeners[0].model, *(torch.stack(parts) for parts in zip(*steps, strict=True)))
