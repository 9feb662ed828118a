"""The quantile Huber loss and both clippings against their definitions, one number at a time in plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from rlcore.functional.clipping import clip_distribution_mean, clipped_surrogate
from rlcore.functional.quantile import quantile_huber_loss
from rlcore.ppo.returns import ReturnScale
from rlcore.ppo.values import QuantileValues

numbers = st.floats(-100.0, 100.0)
several = st.lists(numbers, min_size=1, max_size=6)
kappas = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(1e-3, 50.0))
ranges = st.floats(1e-3, 10.0)


def row(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def defined_quantile_loss(quantiles: list[float], target: float, kappa: float) -> float:
    """Mean over i of |tau_i - 1{u_i < 0}| L_kappa(u_i) / kappa at tau_i = (2i + 1) / 2N; |u_i| for kappa = 0."""
    total = 0.0
    for i, quantile in enumerate(quantiles):
        error = target - quantile
        quadratic = abs(error) <= kappa and kappa > 0
        size = error * error / (2 * kappa) if quadratic else abs(error) - kappa / 2
        level = (2 * i + 1) / (2 * len(quantiles))
        total += (1 - level if error < 0 else level) * size
    return total / len(quantiles)


@given(several, numbers, kappas)
@example([1.0], 1.0, 0.0)
@example([0.0, 2.0], 1.0, 1.0)
def test_quantile_loss_is_its_definition(quantiles: list[float], target: float, kappa: float) -> None:
    loss = quantile_huber_loss(row(quantiles), torch.tensor(target, dtype=torch.float64), kappa)
    assert loss.item() == pytest.approx(defined_quantile_loss(quantiles, target, kappa), rel=1e-12, abs=1e-12)


@given(several, numbers, kappas)
def test_its_gradient_is_the_slope_of_the_definition(quantiles: list[float], target: float, kappa: float) -> None:
    given_row = row(quantiles).requires_grad_()
    quantile_huber_loss(given_row, torch.tensor(target, dtype=torch.float64), kappa).backward()  # type: ignore[no-untyped-call]
    assert given_row.grad is not None
    for i, (quantile, slope) in enumerate(zip(quantiles, given_row.grad.tolist(), strict=True)):
        error = target - quantile
        level = (2 * i + 1) / (2 * len(quantiles))
        pull = min(1.0, abs(error) / kappa) if kappa > 0 else float(error != 0)
        expected = -math.copysign(pull, error) * (1 - level if error < 0 else level) / len(quantiles)
        assert slope == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(several, numbers, ranges)
def test_a_clipped_distribution_is_the_same_one_elsewhere(quantiles: list[float], old: float, by: float) -> None:
    clipped = clip_distribution_mean(row(quantiles), torch.tensor(old, dtype=torch.float64), by).tolist()
    mean = math.fsum(quantiles) / len(quantiles)
    shift = min(max(mean, old - by), old + by) - mean
    assert clipped == pytest.approx([quantile + shift for quantile in quantiles], rel=1e-12, abs=1e-11)


@given(numbers, st.floats(-3.0, 3.0), st.floats(0.01, 0.9))
def test_the_surrogate_is_the_worse_of_two_and_flat_where_the_ratio_has_gone_far_enough(
    advantage: float, log_ratio: float, by: float
) -> None:
    moved = row([log_ratio]).requires_grad_()
    surrogate = clipped_surrogate(row([advantage]), moved, by)
    ratio = math.exp(log_ratio)
    expected = min(ratio * advantage, min(max(ratio, 1 - by), 1 + by) * advantage)
    assert surrogate.item() == pytest.approx(expected, rel=1e-12, abs=1e-12)
    surrogate.backward()  # type: ignore[no-untyped-call]
    far = ratio > 1 + by if advantage > 0 else ratio < 1 - by
    assert moved.grad is not None
    assert moved.grad.item() == pytest.approx(0.0 if far else ratio * advantage, rel=1e-12, abs=1e-12)


@given(several, numbers, numbers, st.floats(0.1, 50.0), kappas, ranges, st.integers(0, 2**16))
def test_the_value_loss_clips_in_units_of_the_return_whatever_the_scale(
    outputs: list[float], target: float, old: float, spread: float, kappa: float, by: float, seed: int
) -> None:
    scale = ReturnScale("zero_lag", 0.0, 1e-4)
    scale.update(np.random.default_rng(seed).normal(3.0, spread, size=20))
    scale.activate()
    mean, std = scale.snapshot
    values = QuantileValues(len(outputs), kappa, scale)
    loss = values.loss(row(outputs).view(1, 1, -1), row([target]), row([old]).view(1, 1), by)
    raw = mean + std * math.fsum(outputs) / len(outputs)
    shift = (min(max(raw, old - by), old + by) - raw) / std
    each = [
        defined_quantile_loss([output + moved for output in outputs], (target - mean) / std, kappa)
        for moved in (0.0, shift)
    ]
    assert loss.item() == pytest.approx(max(each), rel=1e-9, abs=1e-9)
