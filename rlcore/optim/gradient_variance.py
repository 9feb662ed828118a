"""What gradients are measured as, and how their variance over time is estimated from it.

Notation: ``mean_s`` and ``Var_s`` are mean and population variance over the n elements of one tensor; ``E_t`` and
``Var_t`` those over the steps in which the tensor had a gradient, with exponential weights that sum to 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Final, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlcore.optim import memory
from rlcore.optim.gradient_moments import Floats, Gradients, Integers, Moments, on_host
from rlcore.state.schema import read_list, read_record, read_tensor
from rlcore.types import StateDict, StateValue

Number = TypeVar("Number", bound=np.generic)

# Elementwise statistics take gradients for no larger than this, so that sums of their squares stay finite.
LARGEST_ELEMENT: Final = {torch.float32: 1e16, torch.float64: 1e74}


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


class VarianceEstimator:
    """An estimate of the gradient variance of each of N tensors, of which the subclasses define which variance it is.

    One step is :meth:`measure` (reads the raw gradients, changes no estimate) and later :meth:`commit` (takes them into
    account). A measurement that is not committed leaves no trace.

    This class keeps one number per tensor for each name in ``_names``, all of them float64: ``mean`` and ``variance``
    are E_t and Var_t of mean_s g; ``spatial_variance`` is E_t[Var_s g].
    """

    _kind: ClassVar[str]
    _names: ClassVar[tuple[str, ...]]

    def __init__(self, layouts: Sequence[TensorLayout]) -> None:
        self._layouts = tuple(layouts)
        self._statistics = {name: np.zeros(len(layouts)) for name in self._names}

    def measure(
        self,
        positions: Integers,  # noqa: ARG002
        tensors: Sequence[Tensor],
        weights: Floats,  # noqa: ARG002
        *,
        maximum: bool = False,
    ) -> tuple[Gradients, Moments]:
        """Measure the k gradients ``tensors``, and what :meth:`commit` needs of them.

        :param positions: which of the N tensors they are of, int64 ``[k]``
        :param weights: of this step in each tensor's averages, ``[k]``
        :param maximum: whether to look for the largest magnitude
        """
        gradients = Gradients(tensors)
        return gradients, gradients.measure(maximum=maximum)[0]

    def commit(self, positions: Integers, moments: Moments, weights: Floats) -> None:
        """Take one step into account, with what the last :meth:`measure` was given and returned."""
        statistics = self._statistics
        if "variance" in statistics:
            delta = moments.mean - statistics["mean"][positions]
            statistics["mean"][positions] += weights * delta
            variance = statistics["variance"][positions] + weights * np.square(delta)
            statistics["variance"][positions] = (1.0 - weights) * variance
        if "spatial_variance" in statistics:
            average = statistics["spatial_variance"]
            average[positions] += weights * (moments.variance - average[positions])

    def variance(self) -> Floats:
        """Return the estimate per tensor, float64 ``[N]``, never negative, 0 for a tensor that was not observed."""
        terms = [values for name, values in self._statistics.items() if name != "mean"]
        total: Floats = np.add.reduce(terms)
        return total

    def relinked(self, layouts: Sequence[TensorLayout], kept: Sequence[int]) -> Self:
        """Return an estimator for ``layouts`` with this one's statistics at the positions ``kept``, fresh elsewhere."""
        estimator = type(self)(layouts)
        estimator._statistics = {name: carry_over(x, kept, len(layouts)) for name, x in self._statistics.items()}
        return estimator

    def state_dict(self) -> StateDict:
        """Return a snapshot that later steps do not change."""
        return {name: snapshot(values) for name, values in self._statistics.items()}

    def load_state_dict(self, state: StateValue) -> None:
        """Restore a snapshot; :class:`StateError` if it does not fit, and nothing is changed then."""
        entries = read_record(state, f"state of the estimator {self._kind!r}", self._names)
        self._statistics = {
            name: read_numbers(
                entries[name], f"{name} of the estimator", len(self._layouts), -math.inf if name == "mean" else 0.0
            )
            for name in self._names
        }


class MeanEstimator(VarianceEstimator):
    """``M = Var_t[mean_s g]``: O(1) memory per tensor, blind to noise that cancels within a tensor."""

    _kind, _names = "mean", ("mean", "variance")


class SpatialEstimator(VarianceEstimator):
    """``S = E_t[Var_s g]``: O(1) memory; the spread of a gradient over its elements, which is no noise.

    A gradient that never changes has S > 0 as soon as its elements differ. The measure of document
    004_2d6fc5efa1dace83, option 2, kept to be compared with.
    """

    _kind, _names = "spatial", ("spatial_variance",)


class TotalEstimator(VarianceEstimator):
    """``T = E_t[mean_s g^2] - (E_t[mean_s g])^2``, the variance over steps and elements together: O(1) memory.

    Computed as T = M + S, which holds exactly, so that nothing cancels and the result is never negative.
    """

    _kind, _names = "total", ("mean", "variance", "spatial_variance")


class ElementEstimator(VarianceEstimator):
    """``E = mean_s Var_t[g]``, the stochastic variance of the elements: three numbers of memory per element.

    Gradients are taken for no larger than ``LARGEST_ELEMENT``, 1e16 for float32.

    The kernel settles a committed step in the pass over memory that measures the next one. Everything that reads the
    statistics settles them first; only their sums are known at once.
    """

    _kind, _names = "element", ()

    def __init__(self, layouts: Sequence[TensorLayout]) -> None:
        super().__init__(layouts)
        self._sizes = np.array([max(1, math.prod(layout.shape)) for layout in layouts], dtype=np.float64)
        means = [torch.zeros(x.shape, dtype=x.state_dtype, device=x.device) for x in layouts]
        self._keep(means, [torch.zeros_like(mean) for mean in means])

    def _keep(self, means: list[Tensor], variances: list[Tensor]) -> None:
        self._means, self._variances = means, variances
        self._deviations = [torch.zeros_like(mean) for mean in means]
        # Of the deviations that are committed and not settled, 0 for none.
        self._weights = np.zeros(len(means))
        # Of the variances once the deviations are settled, and as the last measurement announces them; NaN: to be taken
        self._sums, self._announced = np.full(len(means), np.nan), np.full(len(means), np.nan)
        triples = zip(self._means, self._variances, self._deviations, strict=True)
        places = [[0, *map(memory.address, each), each[0].numel()] for each in triples]
        self._table = np.array(places, dtype=np.int64).reshape(-1, 5)
        self._compilable = [0 not in row[1:4] for row in places]

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is of no use after the step, and addresses."""
        self._settle()
        names = ("_layouts", "_statistics", "_sizes", "_means", "_variances")
        return {name: self.__dict__[name] for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._keep(self._means, self._variances)

    def measure(
        self, positions: Integers, tensors: Sequence[Tensor], weights: Floats, *, maximum: bool = False
    ) -> tuple[Gradients, Moments]:
        gradients = Gradients(tensors, [self._compilable[position] for position in positions.tolist()])
        rows = positions[gradients.compiled]
        gradients.table[:, 1:4] = self._table[rows, 1:4]
        pairs = np.empty((len(rows), 2))
        pairs[:, 0], pairs[:, 1] = self._weights[rows], weights[gradients.compiled]
        moments, sums = gradients.measure(maximum=maximum, weights=pairs)
        self._weights[rows] = 0.0
        self._announced[positions], self._announced[rows] = np.nan, sums
        if gradients.plain:
            self._settle()
        largest_norm = math.sqrt((moments.size * moments.mean_square).max(initial=0.0))
        for i in gradients.plain:
            mean = self._means[positions[i]]
            limited = _limited(tensors[i], mean.dtype, largest_norm)
            torch.sub(limited, mean, out=self._deviations[positions[i]])
        return gradients, moments

    def commit(self, positions: Integers, moments: Moments, weights: Floats) -> None:  # noqa: ARG002
        self._sums[positions] = self._announced[positions]
        plain = np.isnan(self._sums[positions])
        self._weights[positions[~plain]] = weights[~plain]
        for weight in np.unique(weights[plain]).tolist() if plain.any() else ():
            self._move(positions[plain & (weights == weight)].tolist(), weight)

    def _move(self, positions: Sequence[int], weight: float) -> None:
        """Settle deviations by torch."""
        variances = [self._variances[position] for position in positions]
        deviations = [self._deviations[position] for position in positions]
        # The same as (1 - w) * (v + w * delta^2), without a temporary for the square.
        torch._foreach_addcmul_(variances, deviations, deviations, value=weight)
        torch._foreach_mul_(variances, 1.0 - weight)
        torch._foreach_add_([self._means[position] for position in positions], deviations, alpha=weight)

    def _settle(self) -> None:
        """Settle what is committed."""
        rows = np.flatnonzero(self._weights)
        if len(rows):
            from rlcore.optim import variance_kernel

            variance_kernel.settle(self._table[rows], self._weights[rows])
            self._weights[rows] = 0.0

    def variance(self) -> Floats:
        unknown = np.isnan(self._sums)
        if unknown.any():
            self._take_sums(np.flatnonzero(unknown))
        return self._sums / self._sizes

    def _take_sums(self, positions: Integers) -> None:
        compiled = np.array(self._compilable, dtype=bool)[positions]
        if compiled.any():
            from rlcore.optim import variance_kernel

            sums = np.empty(int(compiled.sum()))
            variance_kernel.sum_variances(self._table[positions[compiled]], sums)
            self._sums[positions[compiled]] = sums
        plain = positions[~compiled]
        self._sums[plain] = on_host([self._variances[position].sum() for position in plain])

    def relinked(self, layouts: Sequence[TensorLayout], kept: Sequence[int]) -> Self:
        self._settle()
        estimator = type(self)(layouts)
        for position in kept:
            layout = layouts[position]
            estimator._means[position] = _converted(self._means[position], layout, _largest_mean(layout))
            estimator._variances[position] = _converted(self._variances[position], layout, _largest_variance(layout))
        estimator._keep(estimator._means, estimator._variances)
        return estimator

    def state_dict(self) -> StateDict:
        self._settle()
        return {"means": [x.clone() for x in self._means], "variances": [x.clone() for x in self._variances]}

    def load_state_dict(self, state: StateValue) -> None:
        entries = read_record(state, "state of the estimator 'element'", ("means", "variances"))
        means = self._read_list(entries["means"], "means of the estimator")
        variances = self._read_list(entries["variances"], "variances of the estimator", least=0.0)
        pairs = list(zip(means, variances, self._layouts, strict=True))
        self._keep(
            [_converted(mean, layout, _largest_mean(layout)) for mean, _, layout in pairs],
            [_converted(variance, layout, _largest_variance(layout)) for _, variance, layout in pairs],
        )

    def _read_list(self, values: StateValue, where: str, least: float = -math.inf) -> list[Tensor]:
        tensors = zip(read_list(values, where, len(self._layouts)), self._layouts, strict=True)
        return [
            read_tensor(value, f"{where}, position {position}", layout.shape, least=least).detach().clone()
            for position, (value, layout) in enumerate(tensors)
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


def carry_over(values: NDArray[Number], kept: Sequence[int], size: int) -> NDArray[Number]:
    """Return ``[size]`` zeros that hold ``values`` at the positions ``kept``."""
    carried = np.zeros(size, dtype=values.dtype)
    carried[list(kept)] = values[list(kept)]
    return carried


def snapshot(values: NDArray[Any]) -> Tensor:
    """Return a copy of ``values`` as a tensor on the CPU, as a saved state holds it."""
    return torch.from_numpy(values.copy())


def read_numbers(value: StateValue, where: str, size: int, least: float = -math.inf) -> Floats:
    """Read a copy of float64 ``[size]``; raises as :func:`read_tensor`."""
    numbers: Floats = np.array(read_tensor(value, where, (size,), (torch.float64,), least=least).detach().cpu().numpy())
    return numbers


ESTIMATORS: Final[Mapping[str, type[VarianceEstimator]]] = MappingProxyType(
    {"mean": MeanEstimator, "spatial": SpatialEstimator, "total": TotalEstimator, "element": ElementEstimator}
)
