"""Parameters with gradients, in the sizes that targets are given for."""

from __future__ import annotations

import torch
from torch import nn

SIZES: dict[str, list[tuple[int, ...]]] = {
    "22 tensors, 84k": [
        *[(64, 4), (64,), (256, 4), (256, 64), (256,), (256,), (256, 4), (256, 64), (256,), (256,)],
        *[(128, 64), (128,), (160, 128), (160,), (64, 128), (64,), (64, 64), (64,), (64, 64), (64,), (32, 64), (32,)],
    ],
    "8 tensors, 1M": [(354, 354)] * 8,
    "20 tensors, 10M": [(707, 707)] * 20,
}
"""The first is a small recurrent network: two LSTMs and heads."""


def parameters(sizes: list[tuple[int, ...]]) -> list[nn.Parameter]:
    """Drawn once; the gradients stay as they are."""
    generator = torch.Generator().manual_seed(0)
    made = [nn.Parameter(0.1 * torch.randn(size, generator=generator)) for size in sizes]
    for parameter in made:
        parameter.grad = 1e-3 * torch.randn(parameter.shape, generator=generator)
    return made
