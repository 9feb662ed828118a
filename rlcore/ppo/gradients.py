"""Limiting the norm of a gradient that is a number."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from rlcore.errors import NonFiniteGradientError


def clip_norm(parameters: Iterable[tuple[str, nn.Parameter]], max_norm: float) -> None:
    """As ``torch.nn.utils.clip_grad_norm_``, which would make every gradient NaN because of one.

    :param parameters: with their names
    :param max_norm: largest L2 norm of all gradients together, > 0
    :raises NonFiniteGradientError: if the norm is NaN or infinite, as that of finite gradients can be; no gradient is
        changed
    """
    named = {name: parameter for name, parameter in parameters if parameter.grad is not None}
    gradients = {name: parameter.grad for name, parameter in named.items() if parameter.grad is not None}
    norm = torch.nn.utils.get_total_norm(gradients.values())
    if not norm.isfinite():
        bad = (name for name, gradient in gradients.items() if not gradient.isfinite().all())
        label = next(bad, "the whole network")
        raise NonFiniteGradientError(
            label,
            f"the gradient of {label} has the norm {norm.item()}, so no step could be taken; look for the loss term "
            "that is not finite, in the observations and rewards first. Nothing was changed.",
        )
    torch.nn.utils.clip_grads_with_norm_(named.values(), max_norm, norm)
