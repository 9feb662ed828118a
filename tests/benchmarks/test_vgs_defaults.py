"""The measurement of scaling rules in real runs: its figures, and that its panel leaves training as it is."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.vgs_defaults import RULES, Factor, Panel, Run, correlation_time, report
from tests.support.training import differing, make_model


def test_the_factor_stops_at_the_floor_or_at_the_cap_whichever_comes_first() -> None:
    variances = np.array([0.0, 10.0, 60.0, 1e6])
    assert Factor(0.1, 0.1, 50.0)(variances) == pytest.approx([1.0, 0.5, 1 / 6, 1 / 6])
    assert Factor(0.1, 0.1, 100.0)(variances) == pytest.approx([1.0, 0.5, 1 / 7, 0.1])


def test_the_correlation_time_is_that_of_an_autoregressive_series() -> None:
    """x_t = 0.8 x_{t-1} + noise has the correlations 0.8^k, and so the time (1 + 0.8) / (1 - 0.8) = 9."""
    noise = np.random.default_rng(0).normal(size=200_000)
    series = np.empty_like(noise)
    series[0] = noise[0]
    for step in range(1, len(noise)):
        series[step] = 0.8 * series[step - 1] + noise[step]
    assert correlation_time(series) == pytest.approx(9.0, rel=0.1)
    assert correlation_time(noise) == pytest.approx(1.0, rel=0.1)
    assert correlation_time(np.full(1000, 1 / 6)) == 0.0


def test_the_report_shows_the_share_at_the_least_factor() -> None:
    values = np.ones((4, len(RULES)))
    values[:, 0] = [10.0, 10.0, 10.0, 70.0]
    text = report([Run("Some-v0", 64, values)], [Factor(0.1, 0.1, 50.0), Factor(0.1, 0.1, 100.0)], "command")
    row = next(line for line in text.splitlines() if line.startswith("| squared_mean | mean | 10 "))
    cells = [cell.strip() for cell in row.split("|")]
    assert (cells[4].split()[0], cells[5]) == ("0.5", "25%")
    assert (cells[7].split()[0], cells[8]) == ("0.5", "0%")


def test_the_report_says_which_rule_is_shipped_and_how_often_it_answers_to_nothing() -> None:
    values = np.ones((4, len(RULES)))
    values[:, RULES.index(("mean", "squared_mean"))] = [10.0, 10.0, 100.0, 700.0]
    text = report([Run("Some-v0", 64, values), Run("Some-v0", 512, values / 100)], [Factor(0.1, 0.1, 50.0)], "command")
    assert "`squared_mean` of `mean`, alpha 0.1, floor 0.1, cap 100" in text
    assert "`least` of it is Some-v0, 64: 50%; Some-v0, 512: 0%." in text


def test_the_panel_sees_every_step_and_changes_no_gradient() -> None:
    watched = make_model()
    panel = Panel(watched)
    watched.variance_gradient_scaler = panel
    watched.learn(48)
    plain = make_model(variance_gradient_scaling=False).learn(48)
    assert np.shape(panel.rows) == (panel.step_count, len(RULES))
    assert panel.step_count == 4
    assert min(panel.rows[-1]) > 0.0
    assert differing(watched.get_parameters()["policy"], plain.get_parameters()["policy"]) == []
