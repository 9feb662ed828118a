"""Utility of a weight, and the protection from change that it earns.

Source: Elsayed and Mahmood, "Addressing Loss of Plasticity and Catastrophic Forgetting in Continual Learning",
ICLR 2024, with the first-order utility. All functions leave the host unsynchronised; those with an underscore at the
end, or with ``out``, write into what they are given, all others are pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class UtilityExtremes:
    """What the gate has to know of all utilities of one step together.

    :param maximum: max u, 0-dimensional
    :param maximum_magnitude: max |u|, 0-dimensional, at least 0
    """

    maximum: Tensor
    maximum_magnitude: Tensor

    @cached_property
    def scale(self) -> Tensor:
        """See :func:`utility_scale`; the same for every tensor of the step."""
        return utility_scale(self)


def bounded(values: Tensor) -> Tensor:
    """Clamp to a quarter of the dtype's range, so that an average, its bias correction or a sum of two stays finite.

    :param values: any shape, without NaN; infinities become the bound
    """
    limit = torch.finfo(values.dtype).max / 4
    return values.clamp(-limit, limit)


def bounded_(values: Tensor) -> Tensor:
    """As :func:`bounded`, in place."""
    limit = torch.finfo(values.dtype).max / 4
    return values.clamp_(-limit, limit)


def weight_utility(gradient: Tensor, parameter: Tensor, out: Tensor | None = None) -> Tensor:
    """First-order utility -g * p: the estimated rise of the loss if the weight were set to zero.

    :param gradient: any shape, finite
    :param parameter: the same shape, finite
    :param out: memory for the result, if given
    :return: the same shape, finite
    """
    return bounded_(torch.addcmul(gradient.new_zeros(()), gradient, parameter, value=-1, out=out))


def utility_extremes(utilities: Sequence[Tensor]) -> UtilityExtremes:
    """Extremes over all tensors together, on the device of the first and in the widest of their dtypes.

    :param utilities: at least one tensor, each of any shape with at least one element, finite
    """
    lows, highs = zip(*(torch.aminmax(utility) for utility in utilities), strict=True)
    low, high = gather(lows).amin(), gather(highs).amax()
    return UtilityExtremes(maximum=high, maximum_magnitude=torch.maximum(high, -low))


def gather(scalars: Sequence[Tensor]) -> Tensor:
    """Stack 0-dimensional tensors of any device on the device of the first; shape (len(scalars),)."""
    device = scalars[0].device
    return torch.stack([scalar if scalar.device == device else scalar.to(device) for scalar in scalars])


def utility_scale(extremes: UtilityExtremes) -> Tensor:
    """Positive divisor that keeps the order of the utilities: max u, or max |u| where max u <= 0, or 1 if all are 0.

    The published rule divides by max u always: 0/0 where it is 0, and the reverse order where it is negative.
    """
    fallback = torch.where(extremes.maximum_magnitude > 0, extremes.maximum_magnitude, 1.0)
    return torch.where(extremes.maximum > 0, extremes.maximum, fallback)


def gate(utility: Tensor, scale: Tensor, out: Tensor | None = None) -> Tensor:
    """Protection s = sigmoid(u / scale); a weight is changed by the share 1 - s of its step.

    :param utility: any shape, finite
    :param scale: positive, 0-dimensional, on any device
    :param out: memory that the result may take, such as ``utility`` itself
    :return: the shape and dtype of ``utility``, values in [0, 1], never falling where the utility rises
    """
    divisor = scale.to(utility.device)
    if divisor.dtype != utility.dtype:
        return torch.sigmoid(utility.to(divisor.dtype) / divisor).to(utility.dtype)
    return torch.div(utility, divisor, out=out).sigmoid_()


def root_mean_square(values: Tensor) -> Tensor:
    """sqrt(mean(x^2)), 0-dimensional; scaled by max |x| so that the squares neither overflow nor vanish.

    :param values: any shape with at least one element, finite
    """
    scale = values.abs().amax().clamp(min=torch.finfo(values.dtype).tiny)
    norm: Tensor = torch.linalg.vector_norm(values / scale)
    return norm / math.sqrt(values.numel()) * scale
