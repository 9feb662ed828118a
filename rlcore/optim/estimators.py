"""What gradients are measured as, and how their variance over time is estimated from it.

Notation: ``mean_s`` is the mean over the n elements of one tensor; ``E_t`` and ``Var_t`` are mean and population
variance over the steps in which the tensor had a gradient, with exponential weights that sum to 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from rlcore.optim.gradient_moments import Floats, Gradients, Integers, Moments, on_host
from rlcore.optim.sketch import SketchEstimator
from rlcore.optim.state_reading import read_entries, read_tensor
from rlcore.optim.tensor_statistics import TensorLayout, carry_over, read_list, read_numbers, snapshot
from rlcore.types import StateDict, StateValue

# Elementwise statistics take gradients for no larger than this, so that sums of their squares stay finite.
LARGEST_ELEMENT: Final = {torch.float32: 1e16, torch.float64: 1e74}


class VarianceEstimator(Protocol):
    """An estimate of the gradient variance of each of N tensors.

    One step is ``measure`` (reads the raw gradients, changes nothing) and later ``commit`` (takes them into account).
    """

    def __init__(self, layouts: Sequence[TensorLayout]) -> None: ...

    def measure(self, positions: Integers, gradients: Gradients) -> Any:
        """Measure what ``commit`` needs beyond the moments, as the gradients are scaled in place in between.

        :param positions: which of the N tensors the k gradients are of, int64 ``[k]``
        """
        ...

    def commit(self, positions: Integers, moments: Moments, measured: Any, weights: Floats) -> None:
        """Take one step into account; ``weights`` ``[k]`` is the weight of this step in each tensor's average.

        :param measured: what :meth:`measure` returned, with nothing committed in between; may be overwritten
        """
        ...

    def variance(self) -> Floats:
        """Return the estimate per tensor, float64 ``[N]``, never negative, 0 for a tensor that was not observed."""
        ...

    def relinked(self, layouts: Sequence[TensorLayout], kept: Sequence[int]) -> Self:
        """Return an estimator for ``layouts`` with this one's statistics at the positions ``kept``, fresh elsewhere."""
        ...

    def state_dict(self) -> StateDict:
        """Return a snapshot that later steps do not change."""
        ...

    def load_state_dict(self, state: StateValue) -> None:
        """Restore a snapshot; :class:`StateError` if it does not fit, and nothing is changed then."""
        ...


class MeanEstimator:
    """``M = Var_t[mean_s g]``: O(1) memory per tensor, blind to noise that cancels within a tensor."""

    def __init__(self, layouts: Sequence[TensorLayout]) -> None:
        self._mean = np.zeros(len(layouts))
        self._variance = np.zeros(len(layouts))

    def measure(self, positions: Integers, gradients: Gradients) -> None:
        """Everything that is needed stands in the moments."""

    def commit(self, positions: Integers, moments: Moments, measured: None, weights: Floats) -> None:  # noqa: ARG002
        delta = moments.mean - self._mean[positions]
        self._mean[positions] += weights * delta
        self._variance[positions] = (1.0 - weights) * (self._variance[positions] + weights * np.square(delta))

    def variance(self) -> Floats:
        return self._variance.copy()

    def relinked(self, layouts: Sequence[TensorLayout], kept: Sequence[int]) -> Self:
        estimator = type(self)(layouts)
        estimator._mean = carry_over(self._mean, kept, len(layouts))
        estimator._variance = carry_over(self._variance, kept, len(layouts))
        return estimator

    def state_dict(self) -> StateDict:
        return {"mean": snapshot(self._mean), "variance": snapshot(self._variance)}

    def load_state_dict(self, state: StateValue) -> None:
        entries = read_entries(state, ("mean", "variance"), "state of the estimator 'mean'")
        mean = read_numbers(entries["mean"], len(self._mean), "mean of the estimator")
        variance = read_numbers(entries["variance"], len(self._mean), "variance of the estimator", minimum=0.0)
        self._mean, self._variance = mean, variance


class SpatialEstimator:
    """``S = E_t[Var_s g]``: O(1) memory; the spread of a gradient over its elements, which is no noise.

    A gradient that never changes has S > 0 as soon as its elements differ. The measure of document
    004_2d6fc5efa1dace83, option 2, kept to be compared with.
    """

    def __init__(self, layouts: Sequence[TensorLayout]) -> None:
        self._average = np.zeros(len(layouts))

    def measure(self, positions: Integers, gradients: Gradients) -> Floats:  # noqa: ARG002
        return gradients.spatial_variances()

    def commit(self, positions: Integers, moments: Moments, measured: Floats, weights: Floats) -> None:  # noqa: ARG002
        self._average[positions] += weights * (measured - self._average[positions])

    def variance(self) -> Floats:
        return self._average.copy()

    def relinked(self, layouts: Sequence[TensorLayout], kept: Sequence[int]) -> Self:
        estimator = type(self)(layouts)
        estimator._average = carry_over(self._average, kept, len(layouts))
        return estimator

    def state_dict(self) -> StateDict:
        return {"spatial_variance": snapshot(self._average)}

    def load_state_dict(self, state: StateValue) -> None:
        entries = read_entries(state, ("spatial_variance",), "state of the estimator 'spatial'")
        what = "spatial_variance of the estimator"
        self._average = read_numbers(entries["spatial_variance"], len(self._average), what, minimum=0.0)


class TotalEstimator:
    """``T = E_t[mean_s g^2] - (E_t[mean_s g])^2``, the variance over steps and elements together: O(1) memory.

    Computed as T = M + S, which holds exactly, so that nothing cancels and the result is never negative.
    """

    def __init__(self, layouts: Sequence[TensorLayout]) -> None:
        self._layouts = tuple(layouts)
        self._mean, self._spatial = MeanEstimator(layouts), SpatialEstimator(layouts)

    def measure(self, positions: Integers, gradients: Gradients) -> Floats:
        return self._spatial.measure(positions, gradients)

    def commit(self, positions: Integers, moments: Moments, measured: Floats, weights: Floats) -> None:
        self._mean.commit(positions, moments, None, weights)
        self._spatial.commit(positions, moments, measured, weights)

    def variance(self) -> Floats:
        return self._mean.variance() + self._spatial.variance()

    def relinked(self, layouts: Sequence[TensorLayout], kept: Sequence[int]) -> Self:
        estimator = type(self)(layouts)
        estimator._mean, estimator._spatial = self._mean.relinked(layouts, kept), self._spatial.relinked(layouts, kept)
        return estimator

    def state_dict(self) -> StateDict:
        return {**self._mean.state_dict(), **self._spatial.state_dict()}

    def load_state_dict(self, state: StateValue) -> None:
        names = ("mean", "variance", "spatial_variance")
        entries = read_entries(state, names, "state of the estimator 'total'")
        mean, spatial = MeanEstimator(self._layouts), SpatialEstimator(self._layouts)
        mean.load_state_dict({name: entries[name] for name in ("mean", "variance")})
        spatial.load_state_dict({"spatial_variance": entries["spatial_variance"]})
        self._mean, self._spatial = mean, spatial


class ElementEstimator:
    """``E = mean_s Var_t[g]``, the stochastic variance of the elements: three numbers of memory per element.

    Gradients are taken for no larger than ``LARGEST_ELEMENT``, 1e16 for float32.
    """

    def __init__(self, layouts: Sequence[TensorLayout]) -> None:
        self._layouts = tuple(layouts)
        self._sizes = np.array([max(1, math.prod(layout.shape)) for layout in layouts], dtype=np.float64)
        self._means = [torch.zeros(x.shape, dtype=x.state_dtype, device=x.device) for x in layouts]
        self._variances = [torch.zeros_like(mean) for mean in self._means]
        # Kept from step to step, as fresh memory costs more than the arithmetic in it.
        self._deltas = [torch.zeros_like(mean) for mean in self._means]

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is of no use after the step."""
        return {**self.__dict__, "_deltas": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _deltas=[torch.zeros_like(mean) for mean in state["_means"]])

    def measure(self, positions: Integers, gradients: Gradients) -> list[Tensor]:
        """Deviations from the means so far, until the next measurement."""
        largest_norm = gradients.moments.largest_norm
        for position, gradient in zip(positions.tolist(), gradients.tensors, strict=True):
            mean = self._means[position]
            torch.sub(_limited(gradient, mean.dtype, largest_norm), mean, out=self._deltas[position])
        return [self._deltas[position] for position in positions.tolist()]

    def commit(self, positions: Integers, moments: Moments, measured: list[Tensor], weights: Floats) -> None:  # noqa: ARG002
        for weight in np.unique(weights).tolist():
            alike = np.flatnonzero(weights == weight)
            deltas = [measured[i] for i in alike]
            means = [self._means[position] for position in positions[alike]]
            variances = [self._variances[position] for position in positions[alike]]
            # The same as (1 - w) * (v + w * delta^2), without a temporary for the square.
            torch._foreach_addcmul_(variances, deltas, deltas, value=weight)
            torch._foreach_mul_(variances, 1.0 - weight)
            torch._foreach_add_(means, deltas, alpha=weight)

    def variance(self) -> Floats:
        sums = on_host([variance.sum() for variance in self._variances])
        return sums / self._sizes

    def relinked(self, layouts: Sequence[TensorLayout], kept: Sequence[int]) -> Self:
        estimator = type(self)(layouts)
        for position in kept:
            layout = layouts[position]
            estimator._means[position] = _converted(self._means[position], layout, _largest_mean(layout))
            estimator._variances[position] = _converted(self._variances[position], layout, _largest_variance(layout))
        return estimator

    def state_dict(self) -> StateDict:
        return {"means": [x.clone() for x in self._means], "variances": [x.clone() for x in self._variances]}

    def load_state_dict(self, state: StateValue) -> None:
        entries = read_entries(state, ("means", "variances"), "state of the estimator 'element'")
        means = self._read_list(entries["means"], "means of the estimator")
        variances = self._read_list(entries["variances"], "variances of the estimator", minimum=0.0)
        pairs = list(zip(means, variances, self._layouts, strict=True))
        self._means = [_converted(mean, layout, _largest_mean(layout)) for mean, _, layout in pairs]
        self._variances = [_converted(variance, layout, _largest_variance(layout)) for _, variance, layout in pairs]

    def _read_list(self, values: StateValue, what: str, minimum: float | None = None) -> list[Tensor]:
        return [
            read_tensor(value, layout.shape, None, f"{what}, position {position}", minimum)
            for position, (value, layout) in enumerate(
                zip(read_list(values, len(self._layouts), what), self._layouts, strict=True)
            )
        ]


def _limited(gradient: Tensor, dtype: torch.dtype, largest_norm: float) -> Tensor:
    limit, wide = LARGEST_ELEMENT[dtype], gradient.to(dtype)
    return wide if largest_norm <= limit else wide.clamp(-limit, limit)


def _largest_mean(layout: TensorLayout) -> float:
    return LARGEST_ELEMENT[layout.state_dtype]


def _largest_variance(layout: TensorLayout) -> float:
    """Of elements that lie at both ends: the square of their distance."""
    return 4.0 * LARGEST_ELEMENT[layout.state_dtype] ** 2


def _converted(values: Tensor, layout: TensorLayout, largest: float) -> Tensor:
    """Copy elementwise statistics to where and how ``layout`` wants them, no larger than they may grow there."""
    return values.to(layout.device, layout.state_dtype, copy=True).clamp_(-largest, largest)


ESTIMATORS: Final[Mapping[str, type[VarianceEstimator]]] = MappingProxyType(
    {
        "mean": MeanEstimator,
        "spatial": SpatialEstimator,
        "total": TotalEstimator,
        "element": ElementEstimator,
        "sketch": SketchEstimator,
    }
)
