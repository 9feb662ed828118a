"""The adapter of TorchRL: a trainer with its collector, such as ``PPOTrainer`` or ``DQNTrainer``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torchrl.checkpoint import Checkpoint
from torchrl.envs.utils import ExplorationType, set_exploration_type

from rlverify.checks.adapters.adapter import NotSupportedError, TrainerAdapter


class TorchRLAdapter(TrainerAdapter):
    """Every class that derives from ``Trainer``; needs ``collector``, ``loss_module`` and ``train()``.

    Give the trainer ``progress_bar=False``, and the collector a ``total_frames`` that is larger than any check needs.
    """

    def learn(self, model: Any, steps: int) -> Sequence[Any]:
        """``train()`` for as many frames, without the shutdown of the collector at its end."""
        model.total_frames = model.collected_frames + steps
        vars(model.collector)["shutdown"] = lambda *_, **_more: None
        try:
            model.train()
        finally:
            del vars(model.collector)["shutdown"]
        return ()

    def save(self, model: Any, folder: Path) -> None:
        """``save_trainer()`` with the trainer's ``Checkpoint``, or a new one if it has none."""
        before = model.checkpoint, model.save_trainer_file
        model.checkpoint, model.save_trainer_file = before[0] or Checkpoint(), folder / "trainer"
        try:
            model.save_trainer(force_save=True)
        finally:
            model.checkpoint, model.save_trainer_file = before

    def load(self, folder: Path, fresh: Any) -> Any:
        """``load_from_file()`` of a fresh trainer."""
        return fresh.load_from_file(folder / "trainer")

    def act(self, model: Any) -> Any:
        """The deterministic action of the collector's policy for the first observation of a specification of zeros."""
        with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC), torch.random.fork_rng(devices=[]):
            return model.collector.policy(model.collector.env.fake_tensordict().exclude("action"))["action"]

    def modules(self, model: Any) -> Sequence[Any]:
        """The loss module, which holds all networks."""
        return [model.loss_module]

    def target_modules(self, model: Any) -> Sequence[Any]:
        """The modules of the loss module whose names say that they are targets."""
        return [each for name, each in model.loss_module.named_children() if name.startswith("target_")]

    def steps(self, model: Any) -> int:
        """A batch of the collector that is after the frames in which it only collects."""
        batch = model.collector.requested_frames_per_batch
        return int(batch * (1 + -(-(model.collector.init_random_frames or 0) // batch)))

    def environment(self, model: Any) -> Any:
        """The environment of Gymnasium inside of the collector's."""
        env = model.collector.env
        while hasattr(env, "base_env"):
            env = env.base_env
        if not hasattr(env, "_env") or not hasattr(env._env, "step"):
            raise NotSupportedError(f"{type(env).__name__} holds no single environment of Gymnasium")
        return env._env
