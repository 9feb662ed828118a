"""The page on learning: who decides, and that it can come out either way."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.learning import ENVIRONMENTS, EPISODES, SEEDS, STEPS, Run, paired_interval, report

LEVELS = {"ours": 100.0, "baseline": 100.0, "untrained": 10.0}


def runs(**levels: float) -> list[Run]:
    """Runs of every seed around a level for each algorithm."""
    found = {**LEVELS, **levels}
    made = []
    for environment in ENVIRONMENTS:
        for seed in SEEDS:
            noise = np.random.default_rng(seed).normal(0.0, 1.0, EPISODES)
            for name, algorithm, steps in (
                ("ours", "ours", STEPS),
                ("baseline", "baseline", STEPS),
                ("untrained", "baseline", 0),
            ):
                made.append(Run(algorithm, environment, seed, steps, list(found[name] + noise)))
    return made


@pytest.mark.parametrize(
    ("levels", "verdict"),
    [
        ({}, "MET"),
        ({"ours": 97.0}, "MET"),
        ({"ours": 94.0}, "MISSED"),
        ({"ours": 9.0, "baseline": 9.0}, "MET"),
        ({"ours": 8.5, "baseline": 9.0}, "MISSED"),
    ],
)
def test_the_lower_bound_may_be_5_percent_of_what_the_baseline_gained_and_nothing_where_it_lost(
    levels: dict[str, float], verdict: str
) -> None:
    page = report(runs(**levels))
    assert [line.split(": ")[1] for line in page.splitlines() if line.startswith("## ")] == [verdict] * 3


def test_a_missing_run_is_no_page() -> None:
    with pytest.raises(KeyError):
        report([each for each in runs() if (each.seed, each.algorithm) != (SEEDS[0], "ours")])


def test_the_interval_is_over_seeds_drawn_in_pairs() -> None:
    level = np.array([0.0, 100.0, 200.0, 300.0, 400.0])[:, None] + np.zeros((1, 8))
    difference, lower, upper = paired_interval(level + 1.0, level)
    assert (difference, lower, upper) == pytest.approx((1.0, 1.0, 1.0))


def test_a_difference_that_one_seed_makes_has_an_interval_down_to_what_the_others_show() -> None:
    baseline = np.zeros((5, 8))
    ours = np.array([-10.0, 20.0, 20.0, 20.0, 20.0])[:, None] + baseline
    difference, lower, upper = paired_interval(ours, baseline)
    # By hand: the mean of the middle half of five seeds drawn, of which k are the low one (binomial, p = 1/5).
    # P(k >= 4) = 0.7 %, P(k >= 3) = 5.8 %, so 2.5 % from below lies at k = 3, whose middle half holds 14 low of 20.
    assert (difference, upper) == (20.0, 20.0)
    assert lower == pytest.approx((14 * -10 + 6 * 20) / 20)


def test_a_difference_is_judged_by_its_lower_bound() -> None:
    one_fails = [
        Run("ours", each.environment, each.seed, STEPS, [60.0] * EPISODES)
        if (each.algorithm, each.seed) == ("ours", SEEDS[0])
        else each
        for each in runs(ours=101.0)
    ]
    assert "MET" not in [line.split(": ")[-1] for line in report(one_fails).splitlines() if line.startswith("## ")]
