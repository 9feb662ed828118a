"""Moments of the gradients of one step: what is measured of them before anything is averaged over time.

Contiguous float32 memory on the CPU is computed by the compiled loops of :mod:`rlcore.optim.variance_kernel`, all other
by torch, which is the reference. They differ in rounding alone. The first step compiles the loops, or loads them from
the cache on disk.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlcore.optim import memory

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Measured numbers are limited to this, so that their squares are finite in float64.
LARGEST: Final = 1e150
NO_WEIGHTS: Final = np.empty((0, 2))


@dataclass(frozen=True)
class Moments:
    """Moments of the k gradients of one step.

    :param size: number of elements, float64 ``[k]``, as the three below
    :param mean: ``mean_s g``; NaN for a gradient that holds NaN or infinity
    :param variance: ``Var_s g``, at least 0 where the mean is no NaN; exact to about 1e-6 beside a mean of any size
    :param mean_square: ``mean_s g^2 = Var_s g + (mean_s g)^2``; NaN where the mean is NaN
    :param maximum: largest magnitude of an element of all of them, or None where it was not asked for
    """

    size: Floats
    mean: Floats
    variance: Floats
    mean_square: Floats
    maximum: float | None


class Gradients:
    """The raw gradients of one step, dense and not empty.

    :param tensors: any shapes, dtypes and devices
    :param compilable: whether the kernel may take them, one a tensor; None for all
    """

    def __init__(self, tensors: Sequence[Tensor], compilable: Sequence[bool] | None = None) -> None:
        addresses = [memory.address(tensor) for tensor in tensors]
        if compilable is not None:
            addresses = [place if allowed else 0 for place, allowed in zip(addresses, compilable, strict=True)]
        self.tensors, self.size = tensors, np.array([tensor.numel() for tensor in tensors], dtype=np.float64)
        places = np.array(addresses, dtype=np.int64)
        self.compiled: Integers = np.flatnonzero(places)
        """Which of them the kernel takes."""
        self.plain: list[int] = np.flatnonzero(places == 0).tolist() if len(self.compiled) < len(tensors) else []
        self.table = np.zeros((len(self.compiled), 5), dtype=np.int64)
        """That of the kernel."""
        self.table[:, 0], self.table[:, 4] = places[self.compiled], self.size[self.compiled]

    def measure(self, *, maximum: bool, weights: Floats = NO_WEIGHTS) -> tuple[Moments, Floats]:
        """Measure moments, in one pass over memory; what is on a device is waited for once.

        :param maximum: whether to look for the largest magnitude
        :param weights: see :func:`rlcore.optim.variance_kernel.measure`
        :return: the moments; and of each tensor that the kernel takes, the sum of the variances that it announces
        """
        measured = np.zeros((len(self.tensors), 4))
        if len(self.compiled):
            from rlcore.optim import variance_kernel  # imports numba, which only the first step needs

            own = measured if not self.plain else np.zeros((len(self.compiled), 4))
            variance_kernel.measure(self.table, weights, maximum, own)
            measured[self.compiled] = own
        if self.plain:
            measured[self.plain, :3] = _plain_moments([self.tensors[i] for i in self.plain], maximum)
        mean, variance, magnitude = measured[:, 0], measured[:, 1], measured[:, 2]
        mean_square = np.minimum(variance + np.square(mean), LARGEST)
        largest = float(magnitude.max(initial=0.0)) if maximum else None
        return Moments(self.size, mean, variance, mean_square, largest), measured[self.compiled, 3]

    def scale(self, factor: float) -> None:
        """Multiply the gradients by ``factor`` in place."""
        if len(self.compiled):
            from rlcore.optim import variance_kernel

            variance_kernel.scale(self.table, factor)
            # Autograd refuses to go back through a gradient that has changed since, if it is told.
            torch.autograd.graph.increment_version([self.tensors[i] for i in self.compiled])
        if self.plain:
            torch._foreach_mul_([self.tensors[i] for i in self.plain], factor)


def _plain_moments(tensors: Sequence[Tensor], maximum: bool) -> Floats:
    """Mean, variance and, where it is asked for, largest magnitude of each tensor, float64 ``[k, 3]``."""
    numbers: list[Tensor] = []
    for tensor in tensors:
        variance, mean = torch.var_mean(tensor.double(), correction=0)
        numbers += [mean, variance, tensor.abs().amax().double() if maximum else mean]
    measured = on_host(numbers).reshape(-1, 3)
    for position in np.flatnonzero(~np.isfinite(measured[:, 1])).tolist():
        measured[position, :2] = _extreme_moments(tensors[position].double())
    measured[:, :2] = measured[:, :2].clip(-LARGEST, LARGEST)
    return measured


def _extreme_moments(tensor: Tensor) -> tuple[float, float]:
    """Mean and variance, taken in units of the largest magnitude; NaN where that is not finite."""
    largest = float(tensor.abs().amax())
    if not math.isfinite(largest):
        return math.nan, math.nan
    variance, mean = torch.var_mean(tensor / largest, correction=0)
    return float(mean) * largest, float(variance) * largest * largest


def on_host(values: Sequence[Tensor]) -> Floats:
    """Bring scalars of any device and type to the CPU, float64 ``[len(values)]``, in one copy."""
    if not values:
        return np.zeros(0)
    device = values[0].device
    joined: Floats = torch.stack([value.to(device, torch.float64) for value in values]).cpu().numpy()
    return joined
