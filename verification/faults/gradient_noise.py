"""Known bugs of what variance gradient scaling takes for noise, and what document 004 proposes against them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rlcore.optim.gradient_moments import Floats, Integers, Moments
from rlcore.optim.tensor_statistics import TensorLayout
from rlverify import fault, healthy


@fault(
    "ppo-01-variance-of-the-mean",
    target="rlcore.optim.estimators:ElementEstimator.commit",
    pins="0f1ce5a1d59b4c8c",
    area="scaler",
)
def variance_of_the_mean(
    self: Any,
    positions: Integers,
    moments: Moments,  # noqa: ARG001
    measured: Sequence[Tensor],
    weights: Floats,
) -> None:
    """Version 3.0 under the name of the elements' variance: Var_t[mean_s g], the same for every element of a tensor."""
    for position, delta, weight in zip(positions, measured, weights.tolist(), strict=True):
        of_mean = delta.double().mean().square().to(delta.dtype)
        self._variances[position].add_(weight * of_mean).mul_(1.0 - weight)
        self._means[position].add_(delta, alpha=weight)


@fault(
    "ppo-01-numbers-of-every-element-kept",
    target="rlcore.optim.estimators:MeanEstimator.__init__",
    pins="140a8dfe82ffebce",
    area="scaler",
)
def numbers_of_every_element_kept(self: Any, layouts: Sequence[TensorLayout]) -> None:
    """The variance of the mean, with the gradients themselves averaged beside it."""
    healthy("ppo-01-numbers-of-every-element-kept")(self, layouts)
    self._averages = [torch.zeros(layout.shape, dtype=layout.state_dtype) for layout in layouts]
