"""PPO in one file of plain PyTorch, in the manner of CleanRL, that saves and loads exactly.

What makes a resumed run equal to one that never stopped is in `PPO.save` and `PPO.load`: besides networks and
optimizer they keep the step count, the state of every environment and every random generator.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.envs.classic_control import CartPoleEnv
from torch import Tensor, nn
from torch.distributions import Categorical

EPISODE_STEPS = 500


@dataclass(frozen=True)
class Settings:
    """Hyperparameters."""

    n_envs: int = 2
    n_steps: int = 32
    epochs: int = 4
    minibatches: int = 2
    learning_rate: float = 2.5e-4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip_range: float = 0.2
    entropy_coefficient: float = 0.01
    value_coefficient: float = 0.5
    max_gradient_norm: float = 0.5


@dataclass(frozen=True)
class Rollout:
    """What one rollout collected: one row for each step, one column for each environment."""

    observations: Tensor
    actions: Tensor
    log_probabilities: Tensor
    values: Tensor
    rewards: Tensor
    dones: Tensor


class Agent(nn.Module):
    """Policy and value function."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
        self.value = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, observations: Tensor) -> tuple[Categorical, Tensor]:
        """The distribution of actions, and the values."""
        return Categorical(logits=self.policy(observations)), self.value(observations).squeeze(-1)


class PPO:
    """Trains an agent on CartPole."""

    def __init__(self, seed: int = 0, settings: Settings = Settings()) -> None:
        self.settings = settings
        torch.manual_seed(seed)  # of the first weights; everything after them draws from the generator below
        self.agent = Agent()
        self.optimizer = torch.optim.Adam(self.agent.parameters(), lr=settings.learning_rate, eps=1e-5)
        self.generator = torch.Generator().manual_seed(seed)
        self.envs = [CartPoleEnv() for _ in range(settings.n_envs)]
        self.observations = [env.reset(seed=seed + number)[0] for number, env in enumerate(self.envs)]
        self.lengths = [0] * settings.n_envs
        self.step_count = 0

    def learn(self, steps: int) -> None:
        """Train for whole rollouts until at least ``steps`` more environment steps are made."""
        end = self.step_count + steps
        while self.step_count < end:
            self.update(self.collect())

    @torch.no_grad()
    def collect(self) -> Rollout:
        """Act for one rollout."""
        rows = []
        for _ in range(self.settings.n_steps):
            observations = torch.as_tensor(np.stack(self.observations))
            distribution, values = self.agent(observations)
            actions = torch.multinomial(distribution.probs, 1, generator=self.generator).squeeze(-1)
            rewards, dones = zip(*map(self._step, range(len(self.envs)), actions.tolist()), strict=True)
            log_probabilities = distribution.log_prob(actions)
            rows.append((observations, actions, log_probabilities, values, torch.tensor(rewards), torch.tensor(dones)))
        return Rollout(*(torch.stack(column) for column in zip(*rows, strict=True)))

    def _step(self, number: int, action: int) -> tuple[float, float]:
        """Step one environment, and reset it at the end of an episode."""
        observation, reward, terminated, _, _ = self.envs[number].step(action)
        self.lengths[number] += 1
        truncated = self.lengths[number] >= EPISODE_STEPS
        if truncated and not terminated:  # time ran out, so what would have followed counts
            reward += self.settings.gamma * float(self.agent(torch.as_tensor(observation)[None])[1])
        done = terminated or truncated
        if done:
            observation, self.lengths[number] = self.envs[number].reset()[0], 0
        self.observations[number] = observation
        self.step_count += 1
        return float(reward), float(done)

    def update(self, rollout: Rollout) -> None:
        """One PPO update."""
        advantages = self._advantages(rollout)
        returns = advantages + rollout.values
        flat = [each.flatten(0, 1) for each in (*vars(rollout).values(), advantages, returns)]
        observations, actions, old_log_probabilities, _, _, _, advantages, returns = flat
        for _ in range(self.settings.epochs):
            order = torch.randperm(len(actions), generator=self.generator)
            for rows in order.chunk(self.settings.minibatches):
                distribution, values = self.agent(observations[rows])
                ratio = (distribution.log_prob(actions[rows]) - old_log_probabilities[rows]).exp()
                loss = (
                    self._policy_loss(ratio, advantages[rows])
                    + self.settings.value_coefficient * (values - returns[rows]).square().mean()
                    - self.settings.entropy_coefficient * distribution.entropy().mean()
                )
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.agent.parameters(), self.settings.max_gradient_norm)
                self.optimizer.step()

    def _policy_loss(self, ratio: Tensor, advantages: Tensor) -> Tensor:
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        clipped = ratio.clamp(1 - self.settings.clip_range, 1 + self.settings.clip_range)
        return -torch.min(ratio * advantages, clipped * advantages).mean()

    @torch.no_grad()
    def _advantages(self, rollout: Rollout) -> Tensor:
        """Generalised advantage estimation."""
        _, last_values = self.agent(torch.as_tensor(np.stack(self.observations)))
        next_values = torch.cat([rollout.values[1:], last_values[None]])
        continues = self.settings.gamma * (1 - rollout.dones)
        errors = rollout.rewards + continues * next_values - rollout.values
        advantages, advantage = torch.zeros_like(errors), torch.zeros_like(last_values)
        for step in reversed(range(len(errors))):
            advantage = errors[step] + continues[step] * self.settings.gae_lambda * advantage
            advantages[step] = advantage
        return advantages

    def save(self, path: Path) -> None:
        """Write everything that training goes on from."""
        state = {
            "agent": self.agent.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "step_count": self.step_count,
            "lengths": self.lengths,
            "envs": [_env_state(env) for env in self.envs],
            "observations": torch.as_tensor(np.stack(self.observations)),
        }
        torch.save(state, path)

    def load(self, path: Path) -> None:
        """Go on from a file; nothing in it is executed."""
        state = torch.load(path, weights_only=True)
        self.agent.load_state_dict(state["agent"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"])
        self.step_count, self.lengths = state["step_count"], state["lengths"]
        self.observations = list(state["observations"].numpy())
        for env, saved in zip(self.envs, state["envs"], strict=True):
            _set_env_state(env, saved)


def _env_state(env: CartPoleEnv) -> dict[str, Any]:
    """The physics and the random generator, which the next reset draws from."""
    return {"state": [float(each) for each in env.state], "random": env.np_random.bit_generator.state}


def _set_env_state(env: CartPoleEnv, saved: dict[str, Any]) -> None:
    env.state = np.array(saved["state"])
    env.np_random.bit_generator.state = saved["random"]
