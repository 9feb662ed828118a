"""Known bugs of the learning rate, and faults that no document claims."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from stable_baselines3.common.utils import FloatSchedule

from rlcore.ppo.settings import Schedule
from rlverify import fault, healthy, unclaimed

DOCUMENTED_DEFAULT = 3e-4
"""The audited system's default rate, which it uses whatever rate is set."""


@fault(
    "bug-02-lr-of-optimizer-kwargs-ignored",
    target="rlcore.ppo.settings:resolve_learning_rate",
    pins="edd46116aae7b23a",
)
def lr_of_optimizer_kwargs_ignored(
    learning_rate: float | Schedule | None,
    optimizer_kwargs: Mapping[str, Any],  # noqa: ARG001
    default: float,  # noqa: ARG001
) -> float | Schedule:
    """Ignore ``lr`` in optimizer_kwargs. Use ``learning_rate``, or the default."""
    return DOCUMENTED_DEFAULT if learning_rate is None else learning_rate


@fault(
    "bug-02-fix-lost-in-first-train",
    target="rlcore.ppo.algorithm:DistributionalPPO._update_learning_rate",
    pins="9331302b4ba7b300",
)
def fix_lost_in_first_train(self: Any, optimizers: list[torch.optim.Optimizer] | torch.optim.Optimizer) -> None:
    """Build the optimizer with the requested rate. Then set the default rate in every update.

    In this core ``learning_rate`` is the same setting by then, so it is lost too.
    """
    asked, self.lr_schedule = self.lr_schedule, FloatSchedule(DOCUMENTED_DEFAULT)
    try:
        healthy("bug-02-fix-lost-in-first-train")(self, optimizers)
    finally:
        self.lr_schedule = asked


@unclaimed(
    "critics-at-the-rate-of-the-actor",
    target="rlcore.ppo.algorithm:DistributionalPPO._update_learning_rate",
    pins="9331302b4ba7b300",
)
def critics_at_the_rate_of_the_actor(
    self: Any, optimizers: list[torch.optim.Optimizer] | torch.optim.Optimizer
) -> None:
    """Apply the critics' multiplier only until the first update."""
    healthy("critics-at-the-rate-of-the-actor")(self, optimizers)
    for group in self.policy.optimizer.param_groups:
        group["lr"] = self.policy.optimizer.param_groups[0]["lr"]


@fault(
    "rate-multiplied-by-the-factor",
    target="rlcore.ppo.algorithm:DistributionalPPO._update_learning_rate",
    pins="9331302b4ba7b300",
)
def rate_multiplied_by_the_factor(self: Any, optimizers: list[torch.optim.Optimizer] | torch.optim.Optimizer) -> None:
    """Multiply the scheduled rate by the scaling factor."""
    healthy("rate-multiplied-by-the-factor")(self, optimizers)
    scaler = self.variance_gradient_scaler
    for group in self.policy.optimizer.param_groups:
        group["lr"] *= 1.0 if scaler is None else scaler.get_scaling_factor()
