"""Moments of the gradients of one step: what is measured of them before anything is averaged over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Measured numbers are limited to this, so that their squares are finite in float64.
LARGEST: Final = 1e150
# Between these a float32 sum of squares neither overflowed nor lost small elements.
SAFE_POWERS: Final = (1e-30, 1e30)
# Float32 tensors on the CPU of this size together are copied to one vector instead of being visited one by one: a call
# costs as much as some thousand elements.
GATHERED: Final = 2**17
# A variance that is a smaller share of the mean square is measured anew, in float64: (gathered, one by one). Of the one
# the sums are exact to about 1e-6, of the other to 1e-5 for 1e6 elements and to 3e-4 for 1e7.
TRUSTED_SHARES: Final = (0.01, 0.3)


@dataclass(frozen=True)
class Moments:
    """Moments of the k gradients of one step.

    :param size: number of elements, float64 ``[k]``, as the two below
    :param mean: ``mean_s g``; NaN for a gradient that holds NaN or infinity
    :param mean_square: ``mean_s g^2``; NaN likewise
    :param maximum: largest magnitude of an element of all of them, or None where it was not asked for
    """

    size: Floats
    mean: Floats
    mean_square: Floats
    maximum: float | None

    @property
    def largest_norm(self) -> float:
        """Largest L2 norm of a gradient, which no element of any of them exceeds; 0 without gradients."""
        return math.sqrt((self.size * self.mean_square).max(initial=0.0))


@dataclass(frozen=True)
class Gradients:
    """The raw gradients of one step, dense and not empty, with their moments.

    :param tensors: any shapes, dtypes and devices
    :param arrays: NumPy's views of them; empty unless all are float32 on the CPU
    :param gathered: all their elements, one tensor after another in row-major order, where that was cheaper
    """

    tensors: list[Tensor]
    arrays: list[NDArray[np.float32]]
    gathered: NDArray[np.float32] | None
    moments: Moments

    @classmethod
    def measure(cls, tensors: list[Tensor], *, maximum: bool = True) -> Gradients:
        """Measure ``tensors``, each sum in a pass of its own; what is on a device is waited for once.

        ``mean_square`` is exact to about 1e-5 in a tensor of 1e6 elements. Gradients of extreme size are measured
        anew, in float64, and waited for one by one.

        :param maximum: whether to look for the largest magnitude, which costs as much as both sums
        """
        sizes = [tensor.numel() for tensor in tensors]
        size = np.array(sizes, dtype=np.float64)
        simple = size.size > 0 and all(each.dtype == torch.float32 and each.is_cpu for each in tensors)
        arrays = [tensor.numpy() for tensor in tensors] if simple else []
        few = arrays and sum(sizes) <= GATHERED
        gathered = np.concatenate([array.reshape(-1) for array in arrays]) if few else None
        with np.errstate(over="ignore", invalid="ignore"):
            sums = _sums_one_by_one(tensors, simple) if gathered is None else _sums_of_gathered(gathered, size)
            mean, mean_square = _exact_where_extreme(tensors, size, *sums)
        largest = _maximum(tensors if gathered is None else [torch.from_numpy(gathered)]) if maximum else None
        return cls(tensors, arrays, gathered, Moments(size, mean, mean_square, largest))

    def scale(self, factor: float) -> None:
        """Multiply the gradients by ``factor`` in place."""
        for array in self.arrays:
            np.multiply(array, factor, out=array)
        torch.autograd.graph.increment_version(self.tensors[: len(self.arrays)])
        if self.tensors and not self.arrays:
            torch._foreach_mul_(self.tensors, factor)

    def spatial_variances(self) -> Floats:
        """``Var_s g``, the population variance over the elements of each gradient, float64 ``[k]``; never negative.

        Exact to about 1e-4, and 1e-3 for 1e7 elements, beside a mean of any size: where the difference of
        ``mean_s g^2`` and ``(mean_s g)^2`` loses more in rounding, the sum is centred and in float64.
        """
        moments = self.moments
        variances: Floats = moments.mean_square - np.square(moments.mean)
        trusted = TRUSTED_SHARES[self.gathered is None] * moments.mean_square
        for position in np.flatnonzero(variances < trusted).tolist():
            variances[position] = _exact_variance(self.tensors[position])
        return variances

    def elements(self, coordinates: Sequence[Integers], places: Integers) -> Floats:
        """Read some elements of each gradient, float64 ``[sum of their numbers]``.

        :param coordinates: which elements of each flattened gradient
        :param places: the same in all of them, one after another
        """
        if self.gathered is not None:
            return self.gathered[places].astype(np.float64)
        if self.arrays:
            pairs = zip(self.arrays, coordinates, strict=True)
            return np.concatenate([array.reshape(-1)[drawn] for array, drawn in pairs]).astype(np.float64)
        watched = [
            number
            for tensor, drawn in zip(self.tensors, coordinates, strict=True)
            for number in tensor.reshape(-1)[torch.from_numpy(drawn).to(tensor.device)].unbind()
        ]
        return on_host(watched)


def _sums_of_gathered(gathered: NDArray[np.float32], size: Floats) -> tuple[Floats, Floats]:
    """Sum and sum of squares of each tensor."""
    starts = (np.cumsum(size) - size).astype(np.int64)
    sums = np.add.reduceat(gathered, starts), np.add.reduceat(np.square(gathered), starts)
    return sums[0].astype(np.float64), sums[1].astype(np.float64)


def _sums_one_by_one(tensors: Sequence[Tensor], simple: bool) -> tuple[Floats, Floats]:
    """Sum and sum of squares of each tensor, which is in the cache for the second where it fits there.

    :param simple: whether all are float32 on the CPU
    """
    if not simple:
        tensors = [tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float() for tensor in tensors]
    measured = [number for each in tensors for number in (each.sum(), torch.linalg.vector_norm(each))]
    total, norm = (on_host(measured) if not simple else _joined(measured)).reshape(-1, 2).T
    return total, np.square(norm)


def _exact_where_extreme(
    tensors: Sequence[Tensor], size: Floats, total: Floats, power: Floats
) -> tuple[Floats, Floats]:
    """Mean and mean square; those that ran out of float32 from the tensors themselves."""
    mean, mean_square = total / size, power / size
    if power.min(initial=1.0) > SAFE_POWERS[0] and power.max(initial=1.0) < SAFE_POWERS[1]:
        return mean, mean_square
    for position in np.flatnonzero(~((power > SAFE_POWERS[0]) & (power < SAFE_POWERS[1]))).tolist():
        mean[position], mean_square[position] = _exact_moments(tensors[position].double())
    return mean.clip(-LARGEST, LARGEST), mean_square.clip(max=LARGEST)


def _exact_moments(tensor: Tensor) -> tuple[float, float]:
    """Mean and mean square, summed in units of the largest magnitude; NaN where that is not finite."""
    largest = float(tensor.abs().amax())
    if not 0.0 < largest < math.inf:
        return largest * 0.0, largest * 0.0
    unit = tensor / largest
    return float(unit.mean()) * largest, float(unit.square().mean()) * largest * largest


def _exact_variance(tensor: Tensor) -> float:
    """Centred, in float64; limited to ``LARGEST``, also where the squares run out of float64."""
    variance = float(tensor.double().var(correction=0))
    return min(variance, LARGEST) if variance == variance else LARGEST


def _maximum(tensors: Sequence[Tensor]) -> float:
    extremes = [extreme for tensor in tensors for extreme in (tensor.amax(), -tensor.amin())]
    return float(on_host(extremes).max(initial=0.0))


def on_host(values: Sequence[Tensor]) -> Floats:
    """Bring scalars of any device and type to the CPU, float64 ``[len(values)]``, in one copy."""
    if not values:
        return np.zeros(0)
    device, dtype = values[0].device, values[0].dtype
    if any(value.device != device or value.dtype != dtype for value in values):
        values = [value.to(device, torch.float64) for value in values]
    return _joined(values)


def _joined(values: Sequence[Tensor]) -> Floats:
    joined: Floats = torch.stack(list(values)).to("cpu", torch.float64).numpy()
    return joined
