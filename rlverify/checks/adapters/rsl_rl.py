"""The adapter of RSL-RL: a runner with its environment, as ``OnPolicyRunner(env, train_cfg)``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from rlverify.checks.adapters.adapter import TrainerAdapter


class RslRlAdapter(TrainerAdapter):
    """Every class that derives from ``OnPolicyRunner``; needs ``env``, ``alg``, ``cfg`` and the methods of that class.

    Environments of RSL-RL are batches of tensors and none of Gymnasium, so the checks that step one do not apply.
    """

    def learn(self, model: Any, steps: int) -> Sequence[Any]:
        """``learn()`` for as many iterations as have the steps."""
        with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):  # it prints each iteration
            model.learn(max(1, steps // self.steps(model)))
        return ()

    def save(self, model: Any, folder: Path) -> None:
        """``save()`` of the runner."""
        model.save(str(folder / "model.pt"))

    def load(self, folder: Path, fresh: Any) -> Any:
        """``load()`` of a fresh runner."""
        fresh.load(str(folder / "model.pt"))
        return fresh

    def act(self, model: Any) -> Any:
        """The action of ``get_inference_policy()`` for the observations that the environment shows."""
        with torch.inference_mode():
            return model.get_inference_policy(model.device)(model.env.get_observations().to(model.device))

    def modules(self, model: Any) -> Sequence[Any]:
        """The modules of the algorithm: actor and critic, or student; the predictor of curiosity too."""
        found = [each for each in vars(model.alg).values() if isinstance(each, torch.nn.Module)]
        return list({id(each): each for each in found}.values())

    def set_learning_rate(self, model: Any, value: float) -> None:
        """Set the rate of the optimizer, and that which an adaptive schedule starts from."""
        super().set_learning_rate(model, value)
        model.alg.learning_rate = value

    def steps(self, model: Any) -> int:
        """One iteration."""
        return int(model.cfg["num_steps_per_env"] * model.env.num_envs)
