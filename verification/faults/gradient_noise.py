"""Known bugs in how variance gradient scaling measures noise, and document 004's fixes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from rlcore.optim.gradient_variance import Floats, Integers, Moments, TensorLayout
from rlverify import fault, healthy


@fault(
    "ppo-01-variance-of-the-mean",
    target="rlcore.optim.gradient_variance:ElementEstimator.commit",
    pins="dbaf37bb8aa2d836",
    area="scaler",
)
def variance_of_the_mean(
    self: Any,
    positions: Integers,
    moments: Moments,  # noqa: ARG001
    weights: Floats,
) -> None:
    """Compute version 3.0's variance of the mean, Var_t[mean_s g], instead of the elements' variance."""
    for position, weight in zip(positions, weights.tolist(), strict=True):
        delta = self._deviations[position]
        of_mean = delta.double().mean().square().to(delta.dtype)
        self._variances[position].add_(weight * of_mean).mul_(1.0 - weight)
        self._means[position].add_(delta, alpha=weight)


@fault(
    "ppo-01-numbers-of-every-element-kept",
    target="rlcore.optim.gradient_variance:MeanEstimator.__init__",
    pins="7e959e9f715b7c16",
    area="scaler",
)
def numbers_of_every_element_kept(self: Any, layouts: Sequence[TensorLayout]) -> None:
    """Average the gradients of every element in addition to the variance of the mean."""
    healthy("ppo-01-numbers-of-every-element-kept")(self, layouts)
    self._averages = [torch.zeros(layout.shape, dtype=layout.state_dtype) for layout in layouts]
