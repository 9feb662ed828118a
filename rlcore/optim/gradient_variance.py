"""Moments of the gradients of one step, four estimators of their variance over time, and the scaler's settings.

Notation: ``mean_s`` and ``Var_s`` are mean and population variance over the n elements of one tensor; ``E_t`` and
``Var_t`` those over the steps in which the tensor had a gradient, with exponential weights that sum to 1.

The moments of contiguous float32 memory on the CPU come from :mod:`rlcore.optim.compiled`, all other numbers
from torch, which is the reference. They differ in rounding alone. The first step compiles the loops, or loads them from
the cache on disk.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, ClassVar, Final, Literal, NamedTuple, Self, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from rlcore.optim.transfers import on_host
from rlcore.optim.upgd import device_kernels
from rlcore.state.tree import NOT_NEGATIVE, Rules, fit
from rlcore.types import Fraction, Natural, NonNegative, Positive, StateDict, StateValue, Table

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Estimator: TypeAlias = Literal["mean", "spatial", "total", "element"]
Normalization: TypeAlias = Literal["squared_mean", "second_moment"]

# Measured numbers are limited to this, so that their squares are finite in float64.
LARGEST: Final = 1e150
# Elementwise statistics take gradients for no larger than this, so that sums of their squares stay finite.
LARGEST_ELEMENT: Final = {torch.float32: 1e16, torch.float64: 1e74}


_RULES: Final[Rules] = dict.fromkeys(("variance", "spatial_variance", "variances"), NOT_NEGATIVE)


class Moments(NamedTuple):
    """Moments of the k gradients of one step.

    :param size: number of elements, float64 ``[k]``, as the three below
    :param mean: ``mean_s g``; NaN for a gradient that holds NaN or infinity
    :param variance: ``Var_s g``, at least 0 where the mean is no NaN; exact to about 1e-6 next to a mean of any size
    :param mean_square: ``mean_s g^2 = Var_s g + (mean_s g)^2``; NaN where the mean is NaN
    """

    size: Floats
    mean: Floats
    variance: Floats
    mean_square: Floats

    @property
    def power(self) -> float:
        """Sum of the squares of all elements."""
        return float(self.size @ self.mean_square)


def measure(gradients: Sequence[Tensor]) -> Moments:
    """Measure gradients in one pass over memory; what is on a device is waited for once.

    :param gradients: dense and not empty, of any shapes, dtypes and devices
    """
    if gradients and gradients[0].is_cuda and (kernels := device_kernels()):
        measured = kernels.measure(gradients)
        if measured is not None:
            return _moments(gradients, measured)
    from rlcore.optim import compiled

    measured = np.zeros((len(gradients), 2))
    table, taken, others = compiled.table_of(compiled.addresses(gradients), [*map(Tensor.numel, gradients)])
    own = np.zeros((len(taken), 2))
    compiled.measure(table, own)
    measured[taken] = own
    measured[others] = _plain_moments([gradients[i] for i in others])
    return _moments(gradients, measured)


def _moments(gradients: Sequence[Tensor], measured: Floats) -> Moments:
    mean, variance = measured.T
    size = np.array([gradient.numel() for gradient in gradients], dtype=np.float64)
    mean_square = np.minimum(variance + np.square(mean), LARGEST)
    return Moments(size, mean, variance, mean_square)


def scale(gradients: Sequence[Tensor], factor: float) -> None:
    """Multiply the gradients by ``factor`` in place."""
    if gradients:
        torch._foreach_mul_(list(gradients), factor)


def _plain_moments(tensors: Sequence[Tensor]) -> Floats:
    """Mean and variance of each tensor, float64 ``[k, 2]``."""
    numbers = [each for tensor in tensors for each in torch.var_mean(tensor.double(), correction=0)]
    measured = on_host(numbers).reshape(-1, 2)[:, ::-1].copy()
    for position in np.flatnonzero(~np.isfinite(measured[:, 1])).tolist():
        measured[position] = _extreme_moments(tensors[position].double())
    clipped: Floats = measured.clip(-LARGEST, LARGEST)
    return clipped


def _extreme_moments(tensor: Tensor) -> tuple[float, float]:
    """Mean and variance, taken in units of the largest magnitude; NaN where that is not finite."""
    largest = float(tensor.abs().amax())
    if not math.isfinite(largest):
        return math.nan, math.nan
    variance, mean = torch.var_mean(tensor / largest, correction=0)
    return float(mean) * largest, float(variance) * largest * largest


class TensorLayout(NamedTuple):
    """Shape, dtype and device of a parameter, without a reference to it."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, tensor: Tensor) -> Self:
        """Describe ``tensor``."""
        return cls(tuple(tensor.shape), tensor.dtype, tensor.device)

    @property
    def state_dtype(self) -> torch.dtype:
        """float64 for float64 parameters, float32 for all others: an EMA with 0.99 does not move in bfloat16."""
        return torch.float64 if self.dtype == torch.float64 else torch.float32


class VarianceEstimator:
    """An estimate of the gradient variance of each of N tensors; the subclasses define which variance it is.

    One step is :meth:`observe` (reads the raw gradients, changes no estimate) and later :meth:`commit`. A step that is
    not committed leaves no trace.

    This class keeps one number per tensor for each name in ``_names``, all of them float64: ``mean`` and ``variance``
    are E_t and Var_t of mean_s g; ``spatial_variance`` is E_t[Var_s g].
    """

    _kind: ClassVar[str]
    _names: ClassVar[tuple[str, ...]]

    def __init__(self, layouts: Sequence[TensorLayout]) -> None:
        self._layouts = tuple(layouts)
        self._statistics = {name: np.zeros(len(layouts)) for name in self._names}

    def observe(self, positions: Integers, gradients: Sequence[Tensor]) -> None:
        """Read what :meth:`commit` needs of the k raw gradients beyond their moments.

        :param positions: which of the N tensors they are of, int64 ``[k]``
        """

    def commit(self, positions: Integers, moments: Moments, weights: Floats) -> None:
        """Take one step into account.

        :param positions: of the last :meth:`observe`
        :param moments: of its gradients
        :param weights: of this step in each tensor's averages, ``[k]``
        """
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

    def state_dict(self) -> StateDict:
        """Return a snapshot that later steps do not change."""
        return {name: torch.from_numpy(values.copy()) for name, values in self._statistics.items()}

    def load_state_dict(self, state: StateValue) -> None:
        """Restore a snapshot; :class:`StateError` if it does not fit, and nothing is changed then."""
        saved = fit(state, self.state_dict(), f"state of the estimator {self._kind!r}", _RULES)
        self._statistics = {name: np.array(saved[name].cpu().numpy()) for name in self._names}


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
    """

    _kind, _names = "element", ()

    def __init__(self, layouts: Sequence[TensorLayout]) -> None:
        super().__init__(layouts)
        self._means = [torch.zeros(x.shape, dtype=x.state_dtype, device=x.device) for x in layouts]
        self._variances = [torch.zeros_like(mean) for mean in self._means]
        self._deviations: dict[int, Tensor] = {}

    def observe(self, positions: Integers, gradients: Sequence[Tensor]) -> None:
        self._deviations = {}
        for position, gradient in zip(positions.tolist(), gradients, strict=True):
            mean = self._means[position]
            limit = LARGEST_ELEMENT[mean.dtype]
            self._deviations[position] = gradient.to(mean.dtype).clamp(-limit, limit).sub_(mean)

    def commit(self, positions: Integers, moments: Moments, weights: Floats) -> None:  # noqa: ARG002
        for position, weight in zip(positions.tolist(), weights.tolist(), strict=True):
            deviation = self._deviations.pop(position)
            self._means[position].add_(deviation, alpha=weight)
            self._variances[position].add_(deviation.square_(), alpha=weight).mul_(1.0 - weight)

    def variance(self) -> Floats:
        return on_host([x.mean(dtype=torch.float64) if x.numel() else x.sum().double() for x in self._variances])

    def state_dict(self) -> StateDict:
        return {"means": [x.clone() for x in self._means], "variances": [x.clone() for x in self._variances]}

    def load_state_dict(self, state: StateValue) -> None:
        wide = [torch.zeros((), dtype=torch.float64).expand(x.shape) for x in self._layouts]
        saved = fit(state, {"means": wide, "variances": wide}, "state of the estimator 'element'", _RULES)
        for position, layout in enumerate(self._layouts):  # no larger than they may grow in their precision here
            largest = _largest_mean(layout)
            self._means[position].copy_(saved["means"][position].clamp(-largest, largest))
            # Of elements that lie at both ends: the square of their distance.
            largest = 4.0 * LARGEST_ELEMENT[layout.state_dtype] ** 2
            self._variances[position].copy_(saved["variances"][position].clamp(max=largest))


def _largest_mean(layout: TensorLayout) -> float:
    return LARGEST_ELEMENT[layout.state_dtype]


ESTIMATORS: Final[Mapping[str, type[VarianceEstimator]]] = MappingProxyType(
    {"mean": MeanEstimator, "spatial": SpatialEstimator, "total": TotalEstimator, "element": ElementEstimator}
)


class ScalerSettings(Table):
    """Settings of :class:`VarianceGradientScaler`, which describes them.

    :raises SettingError: a value has the wrong type or lies outside its range
    """

    enabled: bool = True
    beta: Annotated[Fraction, Field(lt=1)] = 0.99
    alpha: NonNegative = 0.1
    eps: Positive = 1e-8
    warmup_steps: Natural = 100
    estimator: Estimator = "mean"
    normalization: Normalization = "squared_mean"
    min_scaling_factor: Fraction = 0.1
    max_normalized_variance: Positive = 100.0
