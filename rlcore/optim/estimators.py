"""What gradients are measured as, and how their variance over time is estimated from it.

Notation: ``mean_s`` is the mean over the n elements of one tensor; ``E_t`` and ``Var_t`` are mean and population
variance over the steps in which the tensor had a gradient, with exponential weights that sum to 1.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Protocol, Self

import torch
from torch import Tensor

from rlcore.errors import StateError
from rlcore.optim import gradient_moments
from rlcore.optim.gradient_moments import Moments, on_host
from rlcore.optim.state_reading import read_entries, read_tensor, show
from rlcore.types import StateDict, StateValue

# Elements that the sketch watches in each tensor: the estimate's standard error is then an eighth of the spread of the
# variances between elements.
SKETCH_SIZE: Final = 64


@dataclass(frozen=True)
class TensorLayout:
    """What an estimator needs to know of a parameter; it holds no reference to it."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, tensor: Tensor) -> Self:
        """Describe ``tensor``."""
        return cls(tuple(tensor.shape), tensor.dtype, tensor.device)

    @property
    def state_dtype(self) -> torch.dtype:
        """float64 for float64 parameters, float32 for all others: an EMA with 0.99 stands still in bfloat16."""
        return torch.float64 if self.dtype == torch.float64 else torch.float32


def carry_over(values: Tensor, kept: Sequence[int], size: int) -> Tensor:
    """Return ``[size]`` zeros that hold ``values`` at the positions ``kept``."""
    carried = values.new_zeros(size)
    carried[list(kept)] = values[list(kept)]
    return carried


class VarianceEstimator(Protocol):
    """An estimate of the gradient variance of each of N tensors.

    One step is ``measure`` (reads the raw gradients, changes nothing) and later ``commit`` (takes them into account).
    """

    def __init__(self, layouts: Sequence[TensorLayout]) -> None: ...

    def measure(self, positions: Sequence[int], gradients: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Copy what ``commit`` needs of the raw gradients beyond their moments; they are scaled in place in between."""
        ...

    def commit(self, positions: Sequence[int], moments: Moments, copies: Sequence[Tensor], weights: Tensor) -> None:
        """Take one step into account; ``weights`` ``[k]`` is the weight of this step in each tensor's average.

        May overwrite ``copies``.
        """
        ...

    def variance(self) -> Tensor:
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
        self._mean = torch.zeros(len(layouts), dtype=torch.float64)
        self._variance = torch.zeros(len(layouts), dtype=torch.float64)

    def measure(self, positions: Sequence[int], gradients: Sequence[Tensor]) -> tuple[Tensor, ...]:  # noqa: ARG002
        return ()

    def commit(self, positions: Sequence[int], moments: Moments, copies: Sequence[Tensor], weights: Tensor) -> None:  # noqa: ARG002
        observed = list(positions)
        delta = moments.mean - self._mean[observed]
        self._mean[observed] += weights * delta
        self._variance[observed] = (1.0 - weights) * (self._variance[observed] + weights * delta.square())

    def variance(self) -> Tensor:
        return self._variance.clone()

    def relinked(self, layouts: Sequence[TensorLayout], kept: Sequence[int]) -> Self:
        estimator = type(self)(layouts)
        estimator._mean = carry_over(self._mean, kept, len(layouts))
        estimator._variance = carry_over(self._variance, kept, len(layouts))
        return estimator

    def state_dict(self) -> StateDict:
        return {"mean": self._mean.clone(), "variance": self._variance.clone()}

    def load_state_dict(self, state: StateValue) -> None:
        entries = read_entries(state, ("mean", "variance"), "state of the estimator 'mean'")
        size = tuple(self._mean.shape)
        mean = read_tensor(entries["mean"], size, torch.float64, "mean of the estimator")
        variance = read_tensor(entries["variance"], size, torch.float64, "variance of the estimator", minimum=0.0)
        self._mean, self._variance = mean, variance


class SpatialEstimator:
    """``S = E_t[Var_s g]``: O(1) memory; the spread of a gradient over its elements, which is no noise.

    A gradient that never changes has S > 0 as soon as its elements differ. The measure of document
    004_2d6fc5efa1dace83, option 2, kept to be compared with.
    """

    def __init__(self, layouts: Sequence[TensorLayout]) -> None:
        self._average = torch.zeros(len(layouts), dtype=torch.float64)

    def measure(self, positions: Sequence[int], gradients: Sequence[Tensor]) -> tuple[Tensor, ...]:  # noqa: ARG002
        return (gradient_moments.spatial_variances(gradients),)

    def commit(self, positions: Sequence[int], moments: Moments, copies: Sequence[Tensor], weights: Tensor) -> None:  # noqa: ARG002
        observed = list(positions)
        self._average[observed] += weights * (copies[0] - self._average[observed])

    def variance(self) -> Tensor:
        return self._average.clone()

    def relinked(self, layouts: Sequence[TensorLayout], kept: Sequence[int]) -> Self:
        estimator = type(self)(layouts)
        estimator._average = carry_over(self._average, kept, len(layouts))
        return estimator

    def state_dict(self) -> StateDict:
        return {"spatial_variance": self._average.clone()}

    def load_state_dict(self, state: StateValue) -> None:
        entries = read_entries(state, ("spatial_variance",), "state of the estimator 'spatial'")
        size = tuple(self._average.shape)
        what = "spatial_variance of the estimator"
        self._average = read_tensor(entries["spatial_variance"], size, torch.float64, what, minimum=0.0)


class TotalEstimator:
    """``T = E_t[mean_s g^2] - (E_t[mean_s g])^2``, the variance over steps and elements together: O(1) memory.

    Computed as T = M + S, which holds exactly, so that nothing cancels and the result is never negative.
    """

    def __init__(self, layouts: Sequence[TensorLayout]) -> None:
        self._layouts = tuple(layouts)
        self._mean, self._spatial = MeanEstimator(layouts), SpatialEstimator(layouts)

    def measure(self, positions: Sequence[int], gradients: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return self._spatial.measure(positions, gradients)

    def commit(self, positions: Sequence[int], moments: Moments, copies: Sequence[Tensor], weights: Tensor) -> None:
        self._mean.commit(positions, moments, copies, weights)
        self._spatial.commit(positions, moments, copies, weights)

    def variance(self) -> Tensor:
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
    """``E = mean_s Var_t[g]``, the stochastic variance of the elements: two numbers of memory per element.

    In float32 the variance of an element saturates at 3e38, that is for gradients beyond 1e19.
    """

    def __init__(self, layouts: Sequence[TensorLayout]) -> None:
        self._layouts = tuple(layouts)
        self._means = [torch.zeros(x.shape, dtype=x.state_dtype, device=x.device) for x in layouts]
        self._variances = [torch.zeros_like(mean) for mean in self._means]

    def measure(self, positions: Sequence[int], gradients: Sequence[Tensor]) -> tuple[Tensor, ...]:
        dtypes = [self._layouts[position].state_dtype for position in positions]
        return tuple(g.to(dtype, copy=True) for g, dtype in zip(gradients, dtypes, strict=True))

    def commit(self, positions: Sequence[int], moments: Moments, copies: Sequence[Tensor], weights: Tensor) -> None:  # noqa: ARG002
        for position, copy, weight in zip(positions, copies, weights.tolist(), strict=True):
            mean, variance = self._means[position], self._variances[position]
            largest = torch.finfo(mean.dtype).max
            delta = copy.sub_(mean).clamp_(-largest, largest)
            # The same as (1 - w) * (v + w * delta^2), without a temporary for the square.
            variance.mul_(1.0 - weight).addcmul_(delta, delta, value=weight * (1.0 - weight)).clamp_(max=largest)
            mean.add_(delta, alpha=weight)

    def variance(self) -> Tensor:
        # The float32 mean of saturated elements overflows, and that of an empty tensor is not a number.
        return on_host([variance.mean() for variance in self._variances]).nan_to_num_()

    def relinked(self, layouts: Sequence[TensorLayout], kept: Sequence[int]) -> Self:
        estimator = type(self)(layouts)
        for position in kept:
            estimator._means[position] = _converted(self._means[position], layouts[position])
            estimator._variances[position] = _converted(self._variances[position], layouts[position])
        return estimator

    def state_dict(self) -> StateDict:
        return {"means": [x.clone() for x in self._means], "variances": [x.clone() for x in self._variances]}

    def load_state_dict(self, state: StateValue) -> None:
        entries = read_entries(state, ("means", "variances"), "state of the estimator 'element'")
        means = self._read_list(entries["means"], "means of the estimator")
        variances = self._read_list(entries["variances"], "variances of the estimator", minimum=0.0)
        self._means, self._variances = means, variances

    def _read_list(self, values: StateValue, what: str, minimum: float | None = None) -> list[Tensor]:
        if not isinstance(values, list) or len(values) != len(self._layouts):
            raise StateError(
                f"{what}: expected a list of {len(self._layouts)} tensors, one a parameter; got {show(values)}"
            )
        return [
            _converted(read_tensor(value, layout.shape, None, f"{what}, position {position}", minimum), layout)
            for position, (value, layout) in enumerate(zip(values, self._layouts, strict=True))
        ]


def _converted(values: Tensor, layout: TensorLayout) -> Tensor:
    """Copy elementwise statistics to where and how ``layout`` wants them, kept finite."""
    largest = torch.finfo(layout.state_dtype).max
    return values.to(layout.device, layout.state_dtype, copy=True).clamp_(-largest, largest)


class SketchEstimator:
    """``E`` estimated without bias from at most ``SKETCH_SIZE`` elements of each tensor, drawn once: O(1) memory.

    Every element is equally likely to be drawn, so the mean over all draws is E; a tensor of no more elements than
    that gives E itself. As a fraction of ``E_t[mean_s g^2]``, which is taken over all elements, it can exceed 1 where
    the gradient is concentrated in few elements and these are drawn.

    The draw depends on the position and the size of the tensor alone, so that two scalers of one network watch the
    same elements; it is part of the state.
    """

    def __init__(self, layouts: Sequence[TensorLayout]) -> None:
        drawn = [_drawn_coordinates(position, layout) for position, layout in enumerate(layouts)]
        self._link(layouts, drawn)

    def _link(self, layouts: Sequence[TensorLayout], coordinates: Sequence[Tensor]) -> None:
        """Start fresh with these elements of each flattened tensor, int64 ``[k]`` each."""
        self._layouts = tuple(layouts)
        self._coordinates = [drawn.to(layout.device) for drawn, layout in zip(coordinates, layouts, strict=True)]
        self._elements = ElementEstimator(self._watched())

    def _watched(self) -> list[TensorLayout]:
        pairs = zip(self._layouts, self._coordinates, strict=True)
        return [replace(layout, shape=tuple(drawn.shape)) for layout, drawn in pairs]

    def measure(self, positions: Sequence[int], gradients: Sequence[Tensor]) -> tuple[Tensor, ...]:
        pairs = zip(positions, gradients, strict=True)
        watched = [gradient.reshape(-1)[self._coordinates[position]] for position, gradient in pairs]
        return self._elements.measure(positions, watched)

    def commit(self, positions: Sequence[int], moments: Moments, copies: Sequence[Tensor], weights: Tensor) -> None:
        self._elements.commit(positions, moments, copies, weights)

    def variance(self) -> Tensor:
        return self._elements.variance()

    def relinked(self, layouts: Sequence[TensorLayout], kept: Sequence[int]) -> Self:
        estimator = type(self)(layouts)
        for position in kept:
            estimator._coordinates[position] = self._coordinates[position].to(layouts[position].device)
        estimator._elements = self._elements.relinked(estimator._watched(), kept)
        return estimator

    def state_dict(self) -> StateDict:
        return {"coordinates": [x.clone() for x in self._coordinates], **self._elements.state_dict()}

    def load_state_dict(self, state: StateValue) -> None:
        entries = read_entries(state, ("coordinates", "means", "variances"), "state of the estimator 'sketch'")
        restored = type(self)(())
        restored._link(self._layouts, _read_coordinates(entries["coordinates"], self._layouts))
        restored._elements.load_state_dict({name: entries[name] for name in ("means", "variances")})
        self._coordinates, self._elements = restored._coordinates, restored._elements


def _drawn_coordinates(position: int, layout: TensorLayout) -> Tensor:
    """Draw elements of a flattened tensor without replacement, int64 ``[min(size, SKETCH_SIZE)]``, rising."""
    size = math.prod(layout.shape)
    # Python's generator draws from a range without listing it, so that a large tensor costs no more than a small one.
    generator = random.Random(f"{position} {size}")
    return torch.tensor(sorted(generator.sample(range(size), min(size, SKETCH_SIZE))), dtype=torch.int64)


def _read_coordinates(values: StateValue, layouts: Sequence[TensorLayout]) -> list[Tensor]:
    what = "coordinates of the estimator"
    if not isinstance(values, list) or len(values) != len(layouts):
        raise StateError(f"{what}: expected a list of {len(layouts)} tensors, one a parameter; got {show(values)}")
    return [
        _read_drawn(value, layout, f"{what}, position {i}")
        for i, (value, layout) in enumerate(zip(values, layouts, strict=True))
    ]


def _read_drawn(value: StateValue, layout: TensorLayout, what: str) -> Tensor:
    count, size = value.numel() if isinstance(value, Tensor) else 0, math.prod(layout.shape)
    drawn = read_tensor(value, (count,), torch.int64, what, minimum=0)
    if bool((drawn >= size).any()) or bool((drawn.diff() <= 0).any()) or (count == 0) != (size == 0):
        raise StateError(
            f"{what}: expected rising numbers below {size}, the size of the tensor, and at least one of a tensor that "
            f"is not empty; got {drawn[:8].tolist()}{'...' if count > 8 else ''}. Nothing was changed."
        )
    return drawn


ESTIMATORS: Final[Mapping[str, type[VarianceEstimator]]] = MappingProxyType(
    {
        "mean": MeanEstimator,
        "spatial": SpatialEstimator,
        "total": TotalEstimator,
        "element": ElementEstimator,
        "sketch": SketchEstimator,
    }
)
