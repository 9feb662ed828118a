"""Utility of a weight, and the protection from change that it earns.

Source: Elsayed and Mahmood, "Addressing Loss of Plasticity and Catastrophic Forgetting in Continual Learning",
ICLR 2024, with the first-order utility. All functions are pure and leave the host unsynchronised.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class UtilityExtremes:
    """The sums and extremes over all utilities of one step that the gate uses.

    :param maximum: max u, 0-dimensional or a number
    :param maximum_magnitude: max |u|, at least 0, likewise
    """

    maximum: Tensor | float
    maximum_magnitude: Tensor | float


def bounded(values: Tensor) -> Tensor:
    """Clamp to a quarter of the dtype's range, so that an average, its bias correction or a sum of two stays finite.

    :param values: any shape, without NaN; infinities become the bound
    """
    limit = torch.finfo(values.dtype).max / 4
    return values.clamp(-limit, limit)


def bias_correction(decay: float, steps: int | Tensor) -> float | Tensor:
    """Sum of the weights that an average started at zero has given out after ``steps`` steps."""
    return 1.0 - float(decay) ** (steps.double() if isinstance(steps, Tensor) else steps)


def weight_utility(gradient: Tensor, parameter: Tensor) -> Tensor:
    """First-order utility -g * p: the estimated rise of the loss if the weight were set to zero.

    :param gradient: any shape, finite
    :param parameter: the same shape, finite
    :return: the same shape, finite
    """
    return bounded(-gradient * parameter)


def utility_extremes(utilities: Sequence[Tensor]) -> UtilityExtremes:
    """Extremes over all tensors together, on the device of the first and in the widest of their dtypes.

    :param utilities: at least one tensor, each of any shape with at least one element, finite
    """
    lows, highs = zip(*(torch.aminmax(utility) for utility in utilities), strict=True)
    low, high = gather(lows).amin(), gather(highs).amax()
    return UtilityExtremes(maximum=high, maximum_magnitude=torch.maximum(high, -low))


def joint_extremes(extremes: Sequence[UtilityExtremes]) -> UtilityExtremes:
    """Extremes over all tensors together.

    :param extremes: those of each tensor, at least one
    """
    if len(extremes) == 1:
        return extremes[0]
    maxima = gather([torch.as_tensor(each.maximum) for each in extremes])
    magnitudes = gather([torch.as_tensor(each.maximum_magnitude) for each in extremes])
    return UtilityExtremes(maximum=maxima.amax(), maximum_magnitude=magnitudes.amax())


def gather(scalars: Sequence[Tensor]) -> Tensor:
    """Stack 0-dimensional tensors of any device on the device of the first; shape (len(scalars),)."""
    device = scalars[0].device
    return torch.stack([scalar if scalar.device == device else scalar.to(device) for scalar in scalars])


def utility_scale(extremes: UtilityExtremes) -> Tensor | float:
    """Positive divisor that keeps the order of the utilities: max u, or max |u| where max u <= 0, or 1 if all are 0.

    The published rule divides by max u always: 0/0 where it is 0, and the reverse order where it is negative.
    """
    maximum, magnitude = extremes.maximum, extremes.maximum_magnitude
    if isinstance(maximum, Tensor) and isinstance(magnitude, Tensor):
        return torch.where(maximum > 0, maximum, torch.where(magnitude > 0, magnitude, 1.0))
    return maximum if maximum > 0 else magnitude if magnitude > 0 else 1.0


def gate(utility: Tensor, scale: Tensor | float) -> Tensor:
    """Protection s = sigmoid(u / scale); a weight is changed by the share 1 - s of its step.

    :param utility: any shape, finite
    :param scale: positive; a number, or 0-dimensional on any device
    :return: the shape and dtype of ``utility``, values in [0, 1], never falling where the utility rises
    """
    divisor = torch.as_tensor(scale, device=utility.device)
    return torch.sigmoid(utility.to(torch.promote_types(utility.dtype, divisor.dtype)) / divisor).to(utility.dtype)


def root_mean_square(values: Tensor) -> Tensor:
    """sqrt(mean(x^2)), 0-dimensional; scaled by max |x| so that the squares neither overflow nor vanish.

    :param values: any shape with at least one element, finite
    """
    scale = values.abs().amax().clamp(min=torch.finfo(values.dtype).tiny)
    norm: Tensor = torch.linalg.vector_norm(values / scale)
    return norm / math.sqrt(values.numel()) * scale
