"""What gradients are measured as, and how their variance over time is estimated from it.

Notation: ``mean_s`` is the mean over the n elements of one tensor; ``E_t`` and ``Var_t`` are mean and population
variance over the steps in which the tensor had a gradient, with exponential weights that sum to 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol, Self

import torch
from torch import Tensor

from rlcore.errors import StateError
from rlcore.optim.state_reading import read_entries, read_tensor, show
from rlcore.types import StateDict, StateValue

# Measured numbers are limited to this, so that their squares are finite in float64.
LARGEST: Final = 1e150
# Between these magnitudes a float32 sum of squares neither overflows nor loses small elements.
SAFE_MAGNITUDES: Final = (1e-15, 1e14)


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


@dataclass(frozen=True)
class Moments:
    """Moments of the k gradients of one step; every field is float64 ``[k]`` on the CPU.

    :param size: number of elements
    :param mean: ``mean_s g``
    :param mean_square: ``mean_s g^2``
    :param maximum: ``max |g|``
    """

    size: Tensor
    mean: Tensor
    mean_square: Tensor
    maximum: Tensor


def measure_moments(gradients: Sequence[Tensor]) -> Moments:
    """Measure non-empty dense gradients in one pass per moment; synchronises with the device once.

    Sums run in float32 for gradients of up to 32 bits (``mean_square`` is then exact to about 1e-5 in a tensor of 1e6
    elements) and in float64 where float32 could overflow or lose small elements. A tensor that holds NaN or infinity
    has a ``maximum`` that is not finite.
    """
    size = torch.tensor([gradient.numel() for gradient in gradients], dtype=torch.float64)
    if not gradients:
        return Moments(size, size, size, size)
    wide = [g if g.dtype in (torch.float32, torch.float64) else g.float() for g in gradients]
    extremes = [torch.stack(torch.aminmax(gradient)).abs().max() for gradient in wide]
    sums = [gradient.sum() for gradient in wide]
    total, norm, maximum = _on_host([*sums, *torch._foreach_norm(wide), *extremes]).view(3, -1)
    mean, mean_square = total / size, norm.square() / size
    smallest, largest = SAFE_MAGNITUDES
    unsafe = (maximum > 0) & maximum.isfinite() & ((maximum < smallest) | (maximum > largest))
    for position in unsafe.nonzero().flatten().tolist():
        unit = wide[position].double() / maximum[position].item()
        mean[position] = unit.mean().cpu() * maximum[position]
        mean_square[position] = unit.square_().mean().cpu() * maximum[position].square()
    return Moments(size, mean.clamp_(-LARGEST, LARGEST), mean_square.clamp_(max=LARGEST), maximum)


def _on_host(values: Sequence[Tensor]) -> Tensor:
    """Bring scalars of any device to the CPU as float64 ``[len(values)]`` in one copy."""
    return torch.stack([value.to(values[0].device, torch.float64) for value in values]).cpu()


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
        return _on_host([variance.mean() for variance in self._variances]).nan_to_num_()

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


ESTIMATORS: Final[Mapping[str, type[VarianceEstimator]]] = MappingProxyType(
    {"mean": MeanEstimator, "element": ElementEstimator}
)
