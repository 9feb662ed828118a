"""The quantile Huber loss and both clippings against their definitions, one number at a time in plain Python."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from torch import Tensor

from rlcore.functional.categorical import (
    categorical_mean,
    categorical_support,
    clip_categorical_mean,
    project,
    project_returns,
)
from rlcore.functional.quantile import clip_distribution_mean, quantile_huber_loss
from rlcore.ppo.adaptive import KLPenalty, ReturnScale
from rlcore.ppo.losses import QuantileValues, clipped_surrogate
from rlcore.ppo.policy import TwinCriticRolloutBuffer
from tests.reference import categorical_reference as reference

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


Array = NDArray[np.float32]


@dataclass(frozen=True)
class Rollout:
    """What was collected; the last row of ``values`` and ``starts`` is of the step after the rollout.

    :param rewards: shape (steps, n_envs)
    :param values: shape (steps + 1, n_envs, n_critics)
    :param starts: shape (steps + 1, n_envs), 1 where an episode begins
    """

    rewards: Array
    values: Array
    starts: Array


@st.composite
def rollouts(draw: st.DrawFn) -> Rollout:
    steps, n_envs, n_critics = draw(st.integers(1, 9)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    ends = draw(st.sampled_from([0.0, 0.3, 1.0]))
    return Rollout(
        rng.normal(size=(steps, n_envs)).astype(np.float32) * np.float32(10.0 ** draw(st.integers(-3, 3))),
        rng.normal(size=(steps + 1, n_envs, n_critics)).astype(np.float32),
        (rng.random((steps + 1, n_envs)) < ends).astype(np.float32),
    )


discounts = st.sampled_from([0.0, 0.5, 0.99, 1.0])


def filled_buffer(rollout: Rollout, gamma: float, gae_lambda: float) -> TwinCriticRolloutBuffer:
    steps, n_envs = rollout.rewards.shape
    box = spaces.Box(-1, 1, (1,))
    states = RNNStates(*((torch.zeros(1, n_envs, 1),) * 2,) * 2)
    buffer = TwinCriticRolloutBuffer(
        steps,
        box,
        box,
        (steps, 1, n_envs, 1),
        "cpu",
        gamma=gamma,
        gae_lambda=gae_lambda,
        n_envs=n_envs,
        n_critics=rollout.values.shape[-1],
    )
    zeros = np.zeros((n_envs, 1), dtype=np.float32)
    for step in range(steps):
        values = torch.from_numpy(rollout.values[step])
        recorded: Any = (zeros, zeros, rollout.rewards[step], rollout.starts[step], values, torch.zeros(n_envs))
        buffer.add(*recorded, lstm_states=states)
    buffer.compute_returns_and_advantage(torch.from_numpy(rollout.values[-1]).amin(dim=-1), rollout.starts[-1])
    return buffer


def defined_advantage(rollout: Rollout, env: int, step: int, gamma: float, gae_lambda: float) -> float:
    """sum_l (gamma lambda)^l delta_{t+l} up to the end of the episode or of the rollout (Schulman et al. 2016, eq. 16).

    delta_t = r_t + gamma V(s_{t+1}) - V(s_t), where V(s_{t+1}) is 0 if the episode ended; V is the smallest critic's.
    """
    total, weight = 0.0, 1.0
    for later in range(step, len(rollout.rewards)):
        over = bool(rollout.starts[later + 1, env])
        value, after = (min(map(float, rollout.values[at, env])) for at in (later, later + 1))
        total += weight * (float(rollout.rewards[later, env]) + (0.0 if over else gamma * after) - value)
        weight *= gamma * gae_lambda
        if over:
            break
    return total


@given(rollouts(), discounts, discounts)
def test_advantages_are_the_sum_that_defines_them_and_returns_add_the_value(
    rollout: Rollout, gamma: float, gae_lambda: float
) -> None:
    buffer = filled_buffer(rollout, gamma, gae_lambda)
    size = max(1.0, float(np.abs(rollout.rewards).max()))
    for (step, env), advantage in np.ndenumerate(buffer.advantages):
        expected = defined_advantage(rollout, env, step, gamma, gae_lambda)
        assert advantage == pytest.approx(expected, rel=1e-5, abs=1e-5 * size)
        value = min(map(float, rollout.values[step, env]))
        assert buffer.returns[step, env] == pytest.approx(expected + value, rel=1e-5, abs=1e-5 * size)


@given(
    st.floats(1e-4, 1.0),
    st.floats(1e-3, 1.0),
    st.floats(1.0, 1e3),
    st.lists(st.one_of(st.sampled_from((0.66, 0.68, 1.48, 1.52)), st.floats(0.0, 10.0)), min_size=1, max_size=30),
)
def test_the_kl_coefficient_moves_by_exactly_two_towards_the_target_within_its_bounds(
    target: float, low: float, high: float, over_target: list[float]
) -> None:
    settings: Any = SimpleNamespace(
        kl_penalty_target=target, kl_penalty_coef=1.0, kl_penalty_min_coef=low, kl_penalty_max_coef=high
    )
    penalty = KLPenalty(settings)
    for kl in (target * ratio for ratio in over_target):
        before = penalty.coefficient
        penalty.adapt(kl)
        expected = before * 2 if kl > target * 1.5 else before / 2 if kl < target / 1.5 else before
        assert penalty.coefficient == sorted((low, expected, high))[1]


TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}


class Case(NamedTuple):
    """A distribution somewhere, and a support; ``scale`` is the largest number in it."""

    probabilities: Tensor
    locations: Tensor
    support: Tensor
    scale: float

    @property
    def tolerance(self) -> float:
        return TOLERANCE[self.support.dtype] * max(self.scale, 1.0)


@st.composite
def cases(draw: st.DrawFn, *, inside: bool = False) -> Case:
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    v_min = draw(st.floats(-100, 100))
    width = draw(st.floats(1, 200))
    support = categorical_support(v_min, v_min + width, draw(st.integers(2, 60)), dtype=dtype)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    parts = draw(st.integers(1, 40))
    probabilities = torch.rand(3, parts, generator=generator, dtype=dtype) + 1e-3
    probabilities /= probabilities.sum(dim=-1, keepdim=True)
    spread = torch.rand(3, parts, generator=generator, dtype=dtype)
    low, high = support[0], support[-1]
    locations = low + spread * (high - low) if inside else low - width + spread * 3 * width
    return Case(probabilities, locations.clamp(low, high) if inside else locations, support, float(support.abs().max()))


@given(cases(), st.floats(0, 1e30))
def test_a_value_beyond_the_support_goes_to_its_outermost_atom(case: Case, beyond: float) -> None:
    values = torch.stack([case.support[0] - beyond, case.support[-1] + beyond])
    projected = project_returns(values, case.support)
    edges = torch.eye(len(case.support), dtype=case.support.dtype)[[0, -1]]
    assert torch.allclose(projected, edges, atol=case.tolerance)


@given(cases())
def test_it_is_what_the_definition_gives(case: Case) -> None:
    support = reference.atoms(float(case.support[0]), float(case.support[-1]), len(case.support))
    projected = project(case.probabilities, case.locations, case.support)
    for row, (probabilities, locations) in enumerate(zip(case.probabilities, case.locations, strict=True)):
        expected = reference.project(probabilities.tolist(), locations.tolist(), support)
        assert projected[row].tolist() == pytest.approx(expected, abs=case.tolerance)


@given(cases(), st.floats(0.01, 50), st.integers(0, 2**16))
def test_a_clipped_mean_lies_within_the_range_or_at_the_edge_of_the_support(
    case: Case, clip_range: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    probabilities = project(case.probabilities, case.locations, case.support)
    low, high = case.support[0], case.support[-1]
    old = low + torch.rand(3, generator=generator, dtype=low.dtype) * (high - low)
    clipped = clip_categorical_mean(probabilities, old, clip_range, case.support)
    before, after = (categorical_mean(each, case.support) for each in (probabilities, clipped))
    assert torch.allclose(clipped.sum(dim=-1), probabilities.sum(dim=-1), atol=TOLERANCE[low.dtype])
    assert bool(((after - old).abs() <= (before - old).abs() + case.tolerance).all())
    support = reference.atoms(float(low), float(high), len(case.support))
    for row in range(3):
        expected = reference.clip_mean(probabilities[row].tolist(), float(old[row]), clip_range, support)
        assert clipped[row].tolist() == pytest.approx(expected, abs=4 * case.tolerance)
