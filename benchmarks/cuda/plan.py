"""How much is measured: sizes, rounds and the time budget of each section."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import nn

from benchmarks.cuda.timing import Rounds

Shapes = list[tuple[int, ...]]

MLP: Final[Shapes] = [
    *[(64, 4), (64,), (64, 64), (64,), (2, 64), (2,)],
    *[(64, 4), (64,), (64, 64), (64,), (1, 64), (1,)],
]
LSTM_POLICY: Final[Shapes] = [
    *[(64, 4), (64,), (256, 4), (256, 64), (256,), (256,), (256, 4), (256, 64), (256,), (256,)],
    *[(128, 64), (128,), (160, 128), (160,), (64, 128), (64,), (64, 64), (64,), (64, 64), (64,), (32, 64), (32,)],
]


@dataclass(frozen=True)
class Training:
    """Rollouts, and the minibatches that are trained on them.

    :param steps: of each environment, by the size of the minibatches
    """

    envs: int
    steps: Mapping[int, int]
    lstm: int


@dataclass(frozen=True)
class Plan:
    """What one run measures.

    :param tensors: shapes of the parameters of an optimizer, by the name of the size
    :param counted: the size whose kernels and waits are counted
    :param rounds: of short actions
    :param training_rounds: of ``train()``
    :param seconds: the budget of each section
    """

    tensors: Mapping[str, Shapes]
    counted: str
    rounds: Rounds
    training: Training
    training_rounds: Rounds
    seconds: Mapping[str, float]


FULL: Final = Plan(
    tensors={
        "small MLP: 12 tensors, 9k parameters": MLP,
        "LSTM policy: 22 tensors, 84k parameters": LSTM_POLICY,
        "20 tensors, 10M parameters": [(707, 707)] * 20,
    },
    counted="LSTM policy: 22 tensors, 84k parameters",
    rounds=Rounds(planned=20, least_s=0.02),
    training=Training(envs=32, steps={64: 32, 4096: 128}, lstm=256),
    training_rounds=Rounds(planned=10, least_s=0.0, warm_up=1),
    seconds={"optimizer": 90.0, "scaler": 60.0, "training": 140.0, "launches": 40.0, "tests": 120.0},
)
"""450 s at most, but for the one round that each comparison makes in any case."""

REHEARSAL: Final = Plan(
    tensors={"LSTM policy: 22 tensors, 84k parameters": LSTM_POLICY},
    counted="LSTM policy: 22 tensors, 84k parameters",
    rounds=Rounds(planned=3, least_s=0.0),
    training=Training(envs=2, steps={32: 64, 128: 64}, lstm=16),
    training_rounds=Rounds(planned=3, least_s=0.0, warm_up=1),
    seconds={"optimizer": 10.0, "scaler": 10.0, "training": 20.0, "launches": 10.0, "tests": 60.0},
)


def parameters(shapes: Shapes, device: torch.device) -> list[nn.Parameter]:
    """Parameters with gradients, the same numbers at every call."""
    generator = torch.Generator().manual_seed(0)
    made = [nn.Parameter((0.1 * torch.randn(shape, generator=generator)).to(device)) for shape in shapes]
    for parameter in made:
        parameter.grad = (1e-3 * torch.randn(parameter.shape, generator=generator)).to(device)
    return made
