"""Counts become decisions; what is not separated stays undecided."""

from __future__ import annotations

import pytest

from verification.statistics import binomial_interval, decide


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


@pytest.mark.parametrize(("successes", "outcome"), [(3, "held"), (0, "violated"), (1, "undecided"), (2, "undecided")])
def test_what_is_deterministic_holds_in_every_run_or_in_none(successes: int, outcome: str) -> None:
    assert decide(successes, 3).outcome == outcome


def test_an_undecided_count_comes_with_its_interval() -> None:
    decision = decide(1, 3)
    assert (decision.low, decision.high) == binomial_interval(1, 3)


@pytest.mark.parametrize(("successes", "runs"), [(0, 0), (-1, 3), (4, 3)])
def test_an_impossible_count_is_refused(successes: int, runs: int) -> None:
    with pytest.raises(ValueError, match=f"{successes} of {runs} runs"):
        decide(successes, runs)
