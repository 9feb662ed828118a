"""Known bugs of what variance gradient scaling takes for noise, and what document 004 proposes against them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from rlcore.optim.gradient_moments import Floats, Integers, Moments
from rlcore.optim.gradient_variance import TensorLayout
from rlverify import fault, healthy


@fault(
    "ppo-01-variance-of-the-mean",
    target="rlcore.optim.gradient_variance:ElementEstimator.commit",
    pins="2b4ed1f6f96d7554",
    area="scaler",
)
def variance_of_the_mean(
    self: Any,
    positions: Integers,
    moments: Moments,  # noqa: ARG001
    weights: Floats,
) -> None:
    """Version 3.0 under the name of the elements' variance: Var_t[mean_s g], the same for every element of a tensor."""
    self._sums[positions] = np.nan
    for position, weight in zip(positions, weights.tolist(), strict=True):
        delta = self._deviations[position]
        of_mean = delta.double().mean().square().to(delta.dtype)
        self._variances[position].add_(weight * of_mean).mul_(1.0 - weight)
        self._means[position].add_(delta, alpha=weight)


@fault(
    "ppo-01-numbers-of-every-element-kept",
    target="rlcore.optim.gradient_variance:MeanEstimator.__init__",
    pins="046642262c11b858",
    area="scaler",
)
def numbers_of_every_element_kept(self: Any, layouts: Sequence[TensorLayout]) -> None:
    """The variance of the mean, with the gradients themselves averaged beside it."""
    healthy("ppo-01-numbers-of-every-element-kept")(self, layouts)
    self._averages = [torch.zeros(layout.shape, dtype=layout.state_dtype) for layout in layouts]
