"""The return scale by itself: its averages, the correction of the heads, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from rlcore import NonFiniteReturnError, ReturnScale, StateError
from rlcore.ppo.returns import Moments, preserve_outputs, require_finite


def rollouts(count: int, size: int = 50) -> list[NDArray[np.float32]]:
    """Returns whose mean and spread change from rollout to rollout."""
    generator = np.random.default_rng(3)
    return [(generator.normal(size=(size, 2)) * (i + 1) + 10 * i).astype(np.float32) for i in range(count)]


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.99])
def test_statistics_are_those_of_all_rollouts_together_each_weighed_by_its_age(decay: float) -> None:
    scale, seen = ReturnScale("zero_lag", decay, 1e-4), rollouts(5)
    for returns in seen:
        scale.update(returns)
    weights = np.array([decay**age for age in (4, 3, 2, 1, 0)])
    weights /= weights.sum()
    exact = [returns.astype(np.float64) for returns in seen]
    mean = sum(w * r.mean() for w, r in zip(weights, exact, strict=True))
    square = sum(w * (r**2).mean() for w, r in zip(weights, exact, strict=True))
    assert scale.statistics == pytest.approx((mean, np.sqrt(square - mean**2)), rel=1e-12)


def test_before_the_first_rollout_returns_are_as_they_are_and_the_first_counts_fully() -> None:
    scale = ReturnScale("zero_lag", 0.99, 1e-4)
    assert scale.statistics == scale.snapshot == (0.0, 1.0)
    scale.update(np.array([1.0, 3.0]))
    assert scale.statistics == pytest.approx((2.0, 1.0))


@pytest.mark.parametrize("constant", [0.0, 1e6, -1e-3])
def test_constant_returns_do_not_explode(constant: float) -> None:
    scale = ReturnScale("zero_lag", 0.9, 0.01)
    for _ in range(20):
        scale.update(np.full(64, constant, dtype=np.float32))
    scale.activate()
    assert scale.snapshot.std == 0.01
    assert abs(scale.normalise(torch.tensor(constant)).item()) < 1e-3


def test_small_spread_around_a_large_mean_is_measured() -> None:
    scale = ReturnScale("zero_lag", 0.9, 1e-4)
    for _ in range(200):
        scale.update(np.array([1e8 - 1.0, 1e8 + 1.0]))
    assert scale.statistics == pytest.approx((1e8, 1.0), rel=1e-9)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_returns_that_are_no_numbers_are_counted_and_refused(value: float) -> None:
    require_finite(np.array([1.0, 2.0]))
    with pytest.raises(NonFiniteReturnError, match=r"2 of 4 returns .* rewards"):
        require_finite(np.array([[value, 1.0], [2.0, value]]))


def test_a_corrected_layer_says_the_same_in_raw_units() -> None:
    torch.manual_seed(0)
    layer, inputs = nn.Linear(16, 8), torch.randn(32, 16)
    before, after = Moments(-3.0, 0.2), Moments(250.0, 40.0)
    raw = before.mean + before.std * layer(inputs)
    preserve_outputs(layer, before, after)
    assert torch.allclose(after.mean + after.std * layer(inputs), raw, rtol=1e-5, atol=1e-4)
    assert layer.weight.dtype == torch.float32
    assert layer.weight.requires_grad


def test_zero_lag_measures_before_the_update_and_corrects_every_layer_by_the_change() -> None:
    scale, (first, second) = ReturnScale("zero_lag", 0.9, 1e-4), rollouts(2)
    torch.manual_seed(0)
    layers, inputs = [nn.Linear(4, 3), nn.Linear(4, 3)], torch.randn(5, 4)
    for returns in (first, second):
        raw = [scale.denormalise(layer(inputs)) for layer in layers]
        scale.before_update(returns, layers)
        assert scale.snapshot == scale.statistics
        for layer, expected in zip(layers, raw, strict=True):
            assert torch.allclose(scale.denormalise(layer(inputs)), expected, rtol=1e-5, atol=1e-5)
        used = scale.snapshot
        scale.after_update(returns)
        scale.before_rollout()
        assert scale.snapshot == scale.statistics == used


def test_snapshot_keeps_the_documented_order_lag_included() -> None:
    scale, (first, second) = ReturnScale("snapshot", 0.0, 1e-4), rollouts(2)
    layer = nn.Linear(4, 3)
    weight = layer.weight.detach().clone()
    history = []
    for returns in (first, second):
        scale.before_rollout()
        scale.before_update(returns, [layer])
        history.append(scale.snapshot)
        scale.after_update(returns)
        history.append(scale.snapshot)
    measured = Moments(float(first.mean(dtype=np.float64)), float(first.std(dtype=np.float64)))
    assert history == [(0.0, 1.0), (0.0, 1.0), measured, measured]
    assert scale.statistics != scale.snapshot
    scale.before_rollout()
    assert scale.snapshot == scale.statistics
    assert torch.equal(layer.weight, weight)


def test_the_lagging_snapshot_is_taken_before_each_update_too() -> None:
    scale = ReturnScale("snapshot", 0.9, 1e-4)
    scale.after_update(np.array([2.0, 6.0]))
    assert scale.statistics == pytest.approx((4.0, 2.0))
    scale.before_update(np.array([0.0]), [])
    assert scale.snapshot == scale.statistics


def test_without_a_rule_nothing_is_scaled_measured_or_saved() -> None:
    scale, layer = ReturnScale(None, 0.9, 1e-4), nn.Linear(4, 3)
    weight = layer.weight.detach().clone()
    scale.before_rollout()
    scale.before_update(np.array([5.0, 7.0]), [layer])
    scale.after_update(np.array([5.0, 7.0]))
    assert scale.statistics == scale.snapshot == (0.0, 1.0)
    assert torch.equal(layer.weight, weight)
    assert scale.state_dict() is None
    with pytest.raises(StateError, match="return_scale=None"):
        scale.load_state_dict({})


def test_a_state_goes_into_another_scale_and_on_from_there() -> None:
    first, second = (ReturnScale("snapshot", 0.9, 1e-4) for _ in range(2))
    for returns in rollouts(3):
        first.before_update(returns, [])
        first.after_update(returns)
    state = first.state_dict()
    assert state is not None
    second.load_state_dict(state)
    for scale in (first, second):
        scale.after_update(rollouts(1)[0])
    assert second.state_dict() == first.state_dict() != state
    second.reset()
    assert second.state_dict() == ReturnScale("snapshot", 0.9, 1e-4).state_dict()


BROKEN: dict[str, dict[str, Any]] = {
    "a weight beyond 1": {"weight": 1.5},
    "a negative variance": {"variance": -1.0},
    "no spread": {"std_snapshot": 0.0},
    "NaN": {"mean": float("nan")},
    "infinity": {"mean_snapshot": float("inf")},
    "a flag": {"mean": True},
    "a tensor": {"variance": torch.tensor(1.0)},
    "nothing": {"weight": None},
    "an unknown entry": {"means": 1.0},
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_state_that_is_none_is_refused_and_changes_nothing(case: str) -> None:
    scale = ReturnScale("zero_lag", 0.9, 1e-4)
    scale.update(np.array([1.0, 4.0]))
    before = scale.state_dict()
    with pytest.raises(StateError, match=f"return_scale_state.*{next(iter(BROKEN[case]))}"):
        scale.load_state_dict({**before, **BROKEN[case]})
    assert scale.state_dict() == before
