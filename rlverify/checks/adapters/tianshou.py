"""The adapter of Tianshou: a trainer, as ``algorithm.create_trainer(params)`` makes it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlverify.checks.adapters.adapter import NotSupportedError, TrainerAdapter


class TianshouAdapter(TrainerAdapter):
    """Every class that derives from ``Trainer``; needs ``algorithm``, ``params``, ``reset()`` and ``execute_epoch()``.

    A trainer that has no progress bar (``show_progress=False``) is readable in the output of a check.
    """

    def learn(self, model: Any, steps: int) -> Sequence[Any]:
        """One epoch of as many steps; the first is begun with ``reset()``, as ``run()`` does."""
        if not model._epoch:
            model.reset()
        model.params.epoch_num_steps = steps
        model.execute_epoch()
        return ()

    def save(self, model: Any, folder: Path) -> None:
        """The algorithm's ``state_dict()``, and ``save_hdf5()`` of the collector's buffer."""
        torch.save(model.algorithm.state_dict(), folder / "checkpoint.pth")
        self._collector(model).buffer.save_hdf5(str(folder / "buffer.hdf5"))

    def load(self, folder: Path, fresh: Any) -> Any:
        """``load_state_dict()`` of a fresh algorithm, and ``load_hdf5()`` of the buffer for its collector."""
        fresh.algorithm.load_state_dict(torch.load(folder / "checkpoint.pth"))
        collector = self._collector(fresh)
        collector.buffer = type(collector.buffer).load_hdf5(str(folder / "buffer.hdf5"))
        return fresh

    def act(self, model: Any) -> Any:
        """The policy's action for one observation, without a change of the global generators."""
        space = self.environment(model).observation_space
        with torch.random.fork_rng(devices=[]):
            return model.algorithm.policy.compute_action(np.zeros(space.shape, space.dtype))

    def modules(self, model: Any) -> Sequence[Any]:
        """The algorithm, which holds the policy and all networks."""
        return [model.algorithm]

    def target_modules(self, model: Any) -> Sequence[Any]:
        """The lagged networks of the algorithm."""
        lagged = getattr(model.algorithm, "_lagged_networks", None)
        return [] if lagged is None else [each.target for each in lagged._lagged_network_pairs]

    def steps(self, model: Any) -> int:
        """What is collected before an update; of whole episodes, as many steps as by default."""
        return int(getattr(model.params, "collection_step_num_env_steps", None) or super().steps(model))

    def environment(self, model: Any) -> Any:
        """The first environment of the training collector."""
        workers = self._collector(model).env.workers
        if not hasattr(workers[0], "env"):
            raise NotSupportedError("the environments are in worker processes")
        return workers[0].env

    def _collector(self, model: Any) -> Any:
        if not hasattr(model.params, "training_collector"):
            raise NotSupportedError(f"{type(model).__name__} has no training collector")
        return model.params.training_collector
