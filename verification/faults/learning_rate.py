"""Known bugs of the learning rate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from rlcore.ppo.config import Schedule
from verification.faults import fault

DOCUMENTED_DEFAULT = 3e-4
"""What trains in the audited system, whatever is asked for."""


@fault(
    "bug-02-lr-of-optimizer-kwargs-ignored", target="rlcore.ppo.config:resolve_learning_rate", pins="12756a0949205372"
)
def lr_of_optimizer_kwargs_ignored(
    learning_rate: float | Schedule | None,
    optimizer_kwargs: Mapping[str, Any],  # noqa: ARG001
    default: float,  # noqa: ARG001
) -> float | Schedule:
    """Only ``learning_rate`` counts; without it the default."""
    return DOCUMENTED_DEFAULT if learning_rate is None else learning_rate


@fault(
    "bug-02-fix-lost-in-first-train",
    target="rlcore.ppo.algorithm:DistributionalPPO._update_learning_rate",
    pins="3ac75aa985f3090a",
)
def fix_lost_in_first_train(self: Any, optimizers: list[torch.optim.Optimizer] | torch.optim.Optimizer) -> None:
    """The optimizer is built with the rate asked for; every update then writes the algorithm's own default over it."""
    self.logger.record("train/learning_rate", DOCUMENTED_DEFAULT)
    for optimizer in optimizers if isinstance(optimizers, list) else [optimizers]:
        for group in optimizer.param_groups:
            group["lr"] = DOCUMENTED_DEFAULT
