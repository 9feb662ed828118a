"""How many runs a figure needs, against cases whose answer is known from the normal distribution."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest

from rlverify.verdicts.statistics import claimed_effect, least_runs, plan_measurement, power

NORMAL = NormalDist()
PILOT = [NORMAL.inv_cdf((place + 0.5) / 50) for place in range(50)]
"""A pilot of mean 0 and standard deviation 1, as even as 50 values can be."""
WIDTH = 0.3


def _power_of_a_normal_mean(runs: int) -> float:
    """That the interval of the mean of unit normal values about 0 lies within ``WIDTH`` of 0."""
    return max(0.0, 2 * NORMAL.cdf(WIDTH * math.sqrt(runs) - NORMAL.inv_cdf(0.975)) - 1)


@pytest.mark.parametrize("runs", [60, 100, 160])
def test_power_is_that_of_a_normal_mean_where_the_pilot_is_normal(runs: int) -> None:
    assert power(PILOT, (-WIDTH, WIDTH), runs) == pytest.approx(_power_of_a_normal_mean(runs), abs=0.07)


def test_the_least_runs_are_those_of_a_normal_mean() -> None:
    expected = next(runs for runs in range(5, 1000) if _power_of_a_normal_mean(runs) >= 0.8)
    found = least_runs(PILOT, (-WIDTH, WIDTH))
    assert found == pytest.approx(expected, rel=0.15)
    assert power(PILOT, (-WIDTH, WIDTH), int(found or 0)) >= 0.8


def test_where_the_pilot_lies_changes_nothing() -> None:
    """Power is asked of the claimed effect, not of the one that the pilot happened to show."""
    moved = [value + 100 for value in PILOT]
    assert power(moved, (-WIDTH, WIDTH), 100) == power(PILOT, (-WIDTH, WIDTH), 100)


def test_a_pilot_of_few_runs_has_the_spread_that_it_estimates() -> None:
    """Two values resampled have half the variance that they estimate, so that fewer runs would seem enough."""
    pair = [-math.sqrt(0.5), math.sqrt(0.5)]  # standard deviation 1, as that of the even pilot
    assert power(pair, (-WIDTH, WIDTH), 100) == pytest.approx(_power_of_a_normal_mean(100), abs=0.1)


@pytest.mark.parametrize(("claimed", "effect"), [((15.0, 25.0), 20.0), ((0.0, math.inf), 2.0), ((-math.inf, 5.0), 3.0)])
def test_the_claimed_effect_is_the_middle_or_one_deviation_inside_the_only_end(
    claimed: tuple[float, float], effect: float
) -> None:
    assert claimed_effect(claimed, sd=2.0) == effect


def test_a_statement_with_one_end_is_planned_for_an_effect_of_one_deviation() -> None:
    # A t-test of nine values at one deviation has a power of 0.75, of 20 values one of 0.99.
    assert 0.6 < power(PILOT, (0.0, math.inf), 9) < 0.9
    assert power(PILOT, (0.0, math.inf), 20) > 0.95


def test_runs_that_are_all_alike_decide_whatever_they_show() -> None:
    found = plan_measurement([3.0, 3.0], (0.0, math.inf), 5)
    assert (found.mean, found.sd, found.power, found.least_runs) == (3.0, 0.0, 1.0, 5)


def test_a_plan_holds_the_spread_of_the_pilot_and_the_power_of_the_runs() -> None:
    """The claim is so wide that the fewest runs confirm it in every experiment."""
    found = plan_measurement([9.0, 10.0, 11.0], (-90.0, 110.0), 7)
    assert (found.mean, found.sd, found.power, found.least_runs) == (10.0, 1.0, 1.0, 5)


@pytest.mark.parametrize("needed", [5, 6, 7, 10, 13, 40, 601, 641, 999, 1000])
def test_the_least_runs_are_found_exactly(needed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a power that grows with the number of runs and is just enough at one of them."""
    monkeypatch.setattr("rlverify.verdicts.statistics.power", lambda _pilot, _claimed, runs: runs / needed)
    assert least_runs(PILOT, (0.0, 1.0), wanted=1.0) == needed


def test_one_run_more_than_the_most_is_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlverify.verdicts.statistics.power", lambda _pilot, _claimed, runs: runs / 1001)
    assert least_runs(PILOT, (0.0, 1.0), wanted=1.0) is None


def test_a_pilot_of_one_run_is_refused() -> None:
    with pytest.raises(ValueError, match="1 runs has no spread"):
        plan_measurement([1.0], (0.0, 1.0), 5)
