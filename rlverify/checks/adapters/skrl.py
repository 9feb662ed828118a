"""The adapter of skrl: a trainer with its environment and one agent, as ``SequentialTrainer(env=..., agents=...)``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from rlverify.checks.adapters.adapter import TrainerAdapter

TARGETS = ("target_policy", "target_value", "target_q_network", "target_critic", "target_critic_1", "target_critic_2")
"""The names that agents give to target networks."""


class SkrlAdapter(TrainerAdapter):
    """Every class that derives from ``Trainer``; needs ``env``, ``agents``, ``cfg`` and ``train()``.

    Give the trainer the settings ``headless=True`` and ``disable_progressbar=True``.
    """

    def learn(self, model: Any, steps: int) -> Sequence[Any]:
        """``train()`` for as many steps of the vector of environments; a single environment begins a new episode."""
        model.cfg.timesteps = max(1, steps // model.env.num_envs)
        model.train()
        return ()

    def save(self, model: Any, folder: Path) -> None:
        """``save()`` of the agent."""
        model.agents.save(str(folder / "agent.pt"))

    def load(self, folder: Path, fresh: Any) -> Any:
        """``load()`` of a fresh agent."""
        fresh.agents.load(str(folder / "agent.pt"))
        return fresh

    def act(self, model: Any) -> Any:
        """The agent's action for one observation, without a change of the global generators."""
        observations = torch.zeros(model.env.num_envs, *model.env.observation_space.shape)
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            return model.agents.act(observations.to(model.env.device), None, timestep=0, timesteps=1)[0]

    def modules(self, model: Any) -> Sequence[Any]:
        """The models of the agent and what it checkpoints otherwise, such as preprocessors."""
        agent = model.agents
        found = [*agent.models.values(), *agent.checkpoint_modules.values()]
        return list({id(each): each for each in found if isinstance(each, torch.nn.Module)}.values())

    def target_modules(self, model: Any) -> Sequence[Any]:
        """Models whose names say that they are targets."""
        return [model.agents.models[name] for name in TARGETS if model.agents.models.get(name) is not None]

    def steps(self, model: Any) -> int:
        """A rollout of on-policy agents; the steps until learning starts, and some more, of the others."""
        cfg = model.agents.cfg
        length = getattr(cfg, "rollouts", 0) or max(cfg.learning_starts, cfg.random_timesteps) + 16
        return int(length * model.env.num_envs)

    def environment(self, model: Any) -> Any:
        """The environment inside of the wrapper."""
        return model.env._env
