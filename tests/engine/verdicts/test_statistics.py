"""Counts become decisions; what is not separated stays undecided."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import scipy.stats

from rlverify.verdicts.statistics import binomial_interval, bootstrap_interval, decide, effect_size, place_of


def test_the_interval_is_the_exact_one() -> None:
    # Clopper and Pearson in closed form: no success in n runs gives 1 - (alpha / 2) ** (1 / n) as upper bound.
    low, high = binomial_interval(0, 10)
    assert low == 0.0
    assert high == pytest.approx(1 - 0.025**0.1, abs=1e-12)


def test_the_interval_is_the_same_from_the_other_side() -> None:
    low, high = binomial_interval(3, 20)
    other_low, other_high = binomial_interval(17, 20)
    assert (low, high) == pytest.approx((1 - other_high, 1 - other_low), abs=1e-12)
    assert low < 3 / 20 < high


def test_an_interval_of_less_confidence_is_narrower() -> None:
    assert binomial_interval(0, 10, confidence=0.9) == pytest.approx((0.0, 1 - 0.05**0.1), abs=1e-12)


@pytest.mark.parametrize(("successes", "outcome"), [(3, "held"), (0, "violated"), (1, "undecided"), (2, "undecided")])
def test_what_is_deterministic_holds_in_every_run_or_in_none(successes: int, outcome: str) -> None:
    assert decide(successes, 3).outcome == outcome


def test_a_decided_count_comes_with_its_share() -> None:
    held, violated = decide(3, 3), decide(0, 3)
    assert (held.low, held.high, violated.low, violated.high) == (1.0, 1.0, 0.0, 0.0)


def test_an_undecided_count_comes_with_its_interval() -> None:
    decision = decide(1, 3)
    assert (decision.low, decision.high) == binomial_interval(1, 3)


@pytest.mark.parametrize(("successes", "runs"), [(0, 0), (-1, 3), (4, 3)])
def test_an_impossible_count_is_refused(successes: int, runs: int) -> None:
    with pytest.raises(ValueError, match=f"{successes} of {runs} runs"):
        decide(successes, runs)


def _sample(seed: int, runs: int, draw: Callable[[Random], float] = lambda random: random.gauss(0, 1)) -> list[float]:
    random = Random(seed)
    return [draw(random) for _ in range(runs)]


def test_the_bootstrap_covers_the_true_mean_about_as_often_as_it_says() -> None:
    intervals = [bootstrap_interval(_sample(seed, 20), 999) for seed in range(300)]
    covered = sum(low <= 0 <= high for low, high in intervals) / len(intervals)
    assert 0.88 <= covered <= 0.98


def test_the_bootstrap_is_the_normal_interval_where_that_holds() -> None:
    values = _sample(1, 400)
    mean = sum(values) / 400
    half = 1.96 * math.sqrt(sum((value - mean) ** 2 for value in values) / 399 / 400)
    assert bootstrap_interval(values) == pytest.approx((mean - half, mean + half), abs=0.1 * half)


def test_the_bootstrap_follows_the_longer_tail() -> None:
    values = _sample(2, 40, lambda random: random.expovariate(1))
    low, high = bootstrap_interval(values)
    mean = sum(values) / 40
    assert high - mean > 1.15 * (mean - low)


def test_the_bootstrap_is_the_same_each_time() -> None:
    assert bootstrap_interval(_sample(3, 10)) == bootstrap_interval(_sample(3, 10))


def test_the_bootstrap_of_two_values_reaches_from_one_to_the_other() -> None:
    """A quarter of the resamples hold only the first value, and a quarter only the second."""
    assert bootstrap_interval([1.0, 3.0]) == (1.0, 3.0)


def test_the_bootstrap_of_three_values_reaches_towards_the_outermost() -> None:
    low, high = bootstrap_interval([1.0, 2.0, 6.0])
    assert 1.0 <= low < 2.0
    assert 4.0 < high <= 6.0


def test_the_bootstrap_of_less_confidence_is_narrower(monkeypatch: pytest.MonkeyPatch) -> None:
    low, high = bootstrap_interval(_sample(3, 10), 999)
    monkeypatch.setattr("rlverify.verdicts.statistics.CONFIDENCE", 0.5)
    narrower = bootstrap_interval(_sample(3, 10), 999)
    assert low < narrower[0] < narrower[1] < high


def test_the_bootstrap_resamples_at_most_100_mb_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def recorded(data: tuple[Any, ...], *arguments: Any, batch: int, **settings: Any) -> Any:
        sizes.append(batch * data[0].nbytes)
        return bootstrap(data, *arguments, batch=batch, **settings)

    bootstrap = scipy.stats.bootstrap
    monkeypatch.setattr("scipy.stats.bootstrap", recorded)
    bootstrap_interval(_sample(3, 10), 99)
    bootstrap_interval(_sample(3, 30), 99)
    assert all(50_000_000 < size <= 100_000_000 for size in sizes)
    assert len(sizes) == 2


def test_the_bootstrap_resamples_as_often_as_asked() -> None:
    """The ends are means of resamples, so that others give other ends."""
    assert bootstrap_interval(_sample(3, 10), 99) != bootstrap_interval(_sample(3, 10), 999)
    assert bootstrap_interval(_sample(3, 10), 999) != bootstrap_interval(_sample(3, 10))


@pytest.mark.parametrize("values", [[0.3] * 5, [0.1 + 0.2, 0.3, 0.3], [0.0] * 4])
def test_values_that_differ_by_rounding_alone_are_one_value(values: list[float]) -> None:
    assert bootstrap_interval(values) == pytest.approx((values[0], values[0]), abs=1e-15)
    assert effect_size(values) is None


@pytest.mark.parametrize("values", [[], [1.0], [1.0, math.nan], [1.0, math.inf]])
def test_an_interval_needs_finite_values(values: list[float]) -> None:
    with pytest.raises(ValueError, match="two or more finite values"):
        bootstrap_interval(values)


def test_the_effect_size_is_the_mean_in_deviations() -> None:
    assert effect_size([1.0, 2.0, 3.0]) == pytest.approx(2.0)
    assert effect_size([1.0, 3.0]) == pytest.approx(math.sqrt(2))
    assert effect_size([-1.0, -2.0, -3.0]) == pytest.approx(-2.0)
    with pytest.raises(ValueError, match="at least two"):
        effect_size([1.0])


@pytest.mark.parametrize(
    ("interval", "claimed", "place"),
    [
        ((16, 24), (15, 25), "within"),
        ((15, 25), (15, 25), "within"),
        ((14, 16), (15, 25), "across"),
        ((24, 26), (15, 25), "across"),
        ((10, 30), (15, 25), "across"),
        ((10, 15), (15, 25), "across"),
        ((25, 30), (15, 25), "across"),
        ((10, 14.9), (15, 25), "apart"),
        ((25.1, 30), (15, 25), "apart"),
        ((0.1, 9), (0, math.inf), "within"),
        ((0, 9), (0, math.inf), "across"),
        ((-1, 9), (0, math.inf), "across"),
        ((0, 0), (0, math.inf), "apart"),
        ((-9, 0), (0, math.inf), "apart"),
        ((-9, -0.1), (-math.inf, 0), "within"),
        ((0, 0), (-math.inf, 0), "apart"),
    ],
)
def test_an_interval_lies_within_what_is_claimed_or_apart_or_across(
    interval: tuple[float, float], claimed: tuple[float, float], place: str
) -> None:
    assert place_of(interval, claimed) == place
