"""Variance gradient scaling beside clipping the norm of the same gradients."""

from __future__ import annotations

from functools import partial
from itertools import cycle
from typing import Any

import pytest
import torch

from benchmarks.side_by_side import Target, compare, profile
from benchmarks.tensors import SIZES, parameters
from rlcore import VarianceGradientScaler

TARGETS = {"mean": 1.5, "total": 1.5}
ROUNDS = dict(zip(SIZES, (300, 60, 12), strict=True))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("estimator", TARGETS)
def bench_scale_and_step(benchmark: Any, estimator: Any, size: str) -> None:
    ours, clipped = parameters(SIZES[size]), parameters(SIZES[size])
    raw = [parameter.grad.clone() for parameter in ours if parameter.grad is not None]
    changing = cycle([1.0, -0.5, 0.7, -1.2])
    scaler = VarianceGradientScaler(ours, estimator=estimator, warmup_steps=0)

    def other_gradients() -> None:
        factor = next(changing)
        for parameter, gradient in [*zip(ours, raw, strict=True), *zip(clipped, raw, strict=True)]:
            torch.mul(gradient, factor, out=parameter.grad)

    def clip() -> None:
        torch.nn.utils.clip_grad_norm_(clipped, 0.5)

    def floor() -> None:
        gradients = [parameter.grad for parameter in clipped]
        torch._foreach_norm(gradients)
        [gradient.sum() for gradient in gradients if gradient is not None]
        torch._foreach_mul_(gradients, 0.5)

    limits = Target(TARGETS[estimator], limited_by="a norm, a sum and one multiplication of every tensor")
    compare(benchmark, partial(_step, scaler), clip, limits, rounds=ROUNDS[size], floor=floor, before=other_gradients)
    assert scaler.get_scaling_factor() < 1.0


def bench_profile(benchmark: Any) -> None:
    actions = {}
    for estimator in ("mean", "element"):
        for size in SIZES:
            scaler = VarianceGradientScaler(parameters(SIZES[size]), estimator=estimator)  # type: ignore[arg-type]
            actions[f"{estimator}, {size}"] = partial(_step, scaler)
    profile(benchmark, actions, repetitions=20, top=5)


def _step(scaler: VarianceGradientScaler) -> None:
    scaler.scale_gradients()
    scaler.step()
