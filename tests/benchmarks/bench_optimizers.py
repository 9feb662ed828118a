"""A step of the utility-gated optimizers beside one of Adam, and what their noise alone costs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rlcore import UPGD, AdaptiveUPGD
from tests.benchmarks.side_by_side import Target, compare, profile
from tests.benchmarks.tensors import SIZES, parameters

TARGETS = dict(zip(SIZES, (1.0, 1.6, 1.5), strict=True))
ROUNDS = dict(zip(SIZES, (300, 60, 12), strict=True))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("optimizer_class", [AdaptiveUPGD, UPGD])
def bench_step(benchmark: Any, optimizer_class: type[torch.optim.Optimizer], size: str) -> None:
    ours = optimizer_class(parameters(SIZES[size]), lr=1e-4)  # type: ignore[call-arg]
    adam = torch.optim.Adam(parameters(SIZES[size]), lr=1e-4, foreach=True)
    fused = torch.optim.Adam(parameters(SIZES[size]), lr=1e-4, fused=True)
    noise = torch.empty(sum(parameter.numel() for parameter in parameters(SIZES[size])))

    def floor() -> None:
        noise.normal_()
        fused.step()

    limits = Target(TARGETS[size], limited_by="torch's normal_() of one number a weight, and Adam(fused=True)")
    compare(benchmark, ours.step, adam.step, limits, rounds=ROUNDS[size], floor=floor)


def bench_profile(benchmark: Any) -> None:
    steps = {size: AdaptiveUPGD(parameters(SIZES[size]), lr=1e-4).step for size in SIZES}
    profile(benchmark, steps, repetitions=20)
