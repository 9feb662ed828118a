"""What adapters for the trainers of several libraries have in common."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from rlverify.checks.adapters.adapter import Adapter


class TrainerAdapter(Adapter):
    """Copies states of modules and optimizers of torch, and sets rates in the optimizers."""

    def get_parameters(self, model: Any) -> Any:
        """Copies of ``state_dict()`` of all modules and optimizers."""
        return [copy.deepcopy(each.state_dict()) for each in self._stateful(model)]

    def set_parameters(self, model: Any, parameters: Any) -> None:
        """``load_state_dict()`` of all modules and optimizers, with copies."""
        for each, state in zip(self._stateful(model), parameters, strict=True):
            each.load_state_dict(copy.deepcopy(state))

    def set_learning_rate(self, model: Any, value: float) -> None:
        """Set the rate of every group of every optimizer."""
        for optimizer in self.optimizers(model):
            for group in optimizer.param_groups:
                group["lr"] = value

    def _stateful(self, model: Any) -> Sequence[Any]:
        return [*self.modules(model), *self.optimizers(model)]
