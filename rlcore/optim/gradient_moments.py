"""Moments of the gradients of one step: what is measured of them before anything is averaged over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

# Measured numbers are limited to this, so that their squares are finite in float64.
LARGEST: Final = 1e150
# Between these magnitudes a float32 sum of squares neither overflows nor loses small elements.
SAFE_MAGNITUDES: Final = (1e-15, 1e14)


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
    wide = [_widened(gradient) for gradient in gradients]
    extremes = [torch.stack(torch.aminmax(gradient)).abs().max() for gradient in wide]
    sums = [gradient.sum() for gradient in wide]
    total, norm, maximum = on_host([*sums, *torch._foreach_norm(wide), *extremes]).view(3, -1)
    mean, mean_square = total / size, norm.square() / size
    smallest, largest = SAFE_MAGNITUDES
    unsafe = (maximum > 0) & maximum.isfinite() & ((maximum < smallest) | (maximum > largest))
    for position in unsafe.nonzero().flatten().tolist():
        unit = wide[position].double() / maximum[position].item()
        mean[position] = unit.mean().cpu() * maximum[position]
        mean_square[position] = unit.square_().mean().cpu() * maximum[position].square()
    return Moments(size, mean.clamp_(-LARGEST, LARGEST), mean_square.clamp_(max=LARGEST), maximum)


def spatial_variances(gradients: Sequence[Tensor]) -> Tensor:
    """Measure ``Var_s g``, the population variance over the elements of each gradient; float64 ``[k]`` on the CPU.

    The sum is centred, so that it is never negative and exact to about 1e-7 beside a mean of any size (the difference
    of ``mean_s g^2`` and ``(mean_s g)^2`` in float32 is lost where the mean is 1e3 times the deviation). It costs
    nine times a norm. Synchronises with the device once, and again for gradients of extreme size.

    :param gradients: non-empty dense tensors, finite
    """
    if not gradients:
        return torch.zeros(0, dtype=torch.float64)
    variances = on_host([_widened(gradient).var(correction=0) for gradient in gradients])
    smallest, largest = SAFE_MAGNITUDES
    safe = (variances > smallest**2) & (variances < largest**2)
    for position in (~safe).nonzero().flatten().tolist():
        variances[position] = gradients[position].double().var(correction=0)
    return variances.nan_to_num_(nan=LARGEST).clamp_(max=LARGEST)


def _widened(gradient: Tensor) -> Tensor:
    """The gradient itself where sums over it are precise enough, else in float32."""
    return gradient if gradient.dtype in (torch.float32, torch.float64) else gradient.float()


def on_host(values: Sequence[Tensor]) -> Tensor:
    """Bring scalars of any device to the CPU as float64 ``[len(values)]`` in one copy."""
    return torch.stack([value.to(values[0].device, torch.float64) for value in values]).cpu()
