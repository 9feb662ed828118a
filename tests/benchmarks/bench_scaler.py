"""Variance gradient scaling beside clipping the norm of the same gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rlcore import VarianceGradientScaler
from tests.benchmarks.side_by_side import Target, compare
from tests.benchmarks.tensors import SIZES, parameters

TARGETS = {"mean": 1.5, "total": 1.5, "sketch": 1.5, "element": 4.0}
ROUNDS = dict(zip(SIZES, (300, 60, 12), strict=True))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("estimator", TARGETS)
def bench_scale_and_step(benchmark: Any, estimator: Any, size: str) -> None:
    ours, clipped = parameters(SIZES[size]), parameters(SIZES[size])
    scaler = VarianceGradientScaler(ours, estimator=estimator, warmup_steps=0)

    def scale() -> None:
        scaler.scale_gradients()
        scaler.step()

    def clip() -> None:
        torch.nn.utils.clip_grad_norm_(clipped, 0.5)

    def floor() -> None:
        gradients = [parameter.grad for parameter in clipped]
        torch._foreach_norm(gradients)
        [gradient.sum() for gradient in gradients if gradient is not None]
        torch._foreach_mul_(gradients, 1.0)

    limits = Target(TARGETS[estimator], limited_by="a norm, a sum and one multiplication of every tensor")
    compare(benchmark, scale, clip, limits, rounds=ROUNDS[size], floor=floor)
