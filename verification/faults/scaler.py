"""Known bugs of variance gradient scaling."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from rlcore.optim.gradient_moments import Moments
from verification.faults import fault, healthy


@fault(
    "bug-09-scaler-linked-to-copies",
    target="rlcore.ppo.algorithm:DistributionalPPO._relink_scaler",
    pins="371e0a30d498e201",
)
def scaler_linked_to_copies(self: Any) -> None:
    """After a restore the scaler holds copies of the parameters, as one that travelled in a pickle does."""
    if self.variance_gradient_scaler is not None:
        self.variance_gradient_scaler.update_parameters(copy.deepcopy(list(self.policy.parameters())))


@fault(
    "bug-10-relink-wipes-statistics",
    target="rlcore.optim.scaler:VarianceGradientScaler.update_parameters",
    pins="ecda64dc06bc76e8",
)
def relink_wipes_statistics(self: Any, parameters: Any) -> None:
    """Relinking forgets what was measured of every tensor, while the step count survives."""
    healthy("bug-10-relink-wipes-statistics")(self, parameters)
    step_count, averages, global_observations = self._step_count, self._global_averages, self._global_observations
    self.reset_statistics()
    self._step_count, self._global_averages, self._global_observations = step_count, averages, global_observations


@fault(
    "bug-04-rebuilding-without-relinking",
    target="rlcore.ppo.algorithm:DistributionalPPO.rebuild_optimizer",
    pins="a1b7abc3b26ad761",
)
def rebuilding_without_relinking(self: Any) -> None:
    """The optimizer is rebuilt, the scaler keeps the references that it had."""
    self.policy.rebuild_optimizer()


@fault(
    "fnd-22-statistics-of-scaled-and-clipped-gradients",
    target="rlcore.optim.scaler:VarianceGradientScaler.step",
    pins="2966f531202ac6c3",
)
def statistics_of_scaled_and_clipped_gradients(self: Any) -> None:
    """step() measures the gradients that it finds, which by then have been scaled and clipped."""
    if self._pending is not None:
        self._measure()
    healthy("fnd-22-statistics-of-scaled-and-clipped-gradients")(self)


@fault(
    "fnd-26-spread-over-elements-for-noise",
    target="rlcore.optim.estimators:ElementEstimator.commit",
    pins="122189ac0e6b4419",
)
def spread_over_elements_for_noise(
    self: Any,
    positions: Sequence[int],
    moments: Moments,  # noqa: ARG001
    copies: Sequence[Tensor],
    weights: Tensor,
) -> None:
    """Option 2 of the document: the average over time of the variance between the elements of one gradient."""
    for position, gradient, weight in zip(positions, copies, weights.tolist(), strict=True):
        self._variances[position].mul_(1 - weight).add_(gradient.var(correction=0), alpha=weight)


@fault(
    "fnd-27-difference-of-float32-averages",
    target="rlcore.optim.estimators:ElementEstimator.commit",
    pins="122189ac0e6b4419",
)
def difference_of_float32_averages(
    self: Any,
    positions: Sequence[int],
    moments: Moments,  # noqa: ARG001
    copies: Sequence[Tensor],
    weights: Tensor,
) -> None:
    """E[g^2] - E[g]^2 in the precision of the gradients, where the difference of two large numbers is lost."""
    for position, gradient, weight in zip(positions, copies, weights.tolist(), strict=True):
        mean, variance = self._means[position], self._variances[position]
        square = variance + mean.square()
        square.mul_(1 - weight).add_(gradient.square(), alpha=weight)
        mean.mul_(1 - weight).add_(gradient, alpha=weight)
        variance.copy_(square - mean.square())
