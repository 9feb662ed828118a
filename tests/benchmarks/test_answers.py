"""The rules by which measurements answer a question, on figures whose answer is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks import defaults, effects, learning, speed
from benchmarks.effects import CHANCE, Effect, effect_in_words
from benchmarks.learning import ENVIRONMENTS, EPISODES, SEEDS, STEPS, Run, paired_interval
from benchmarks.sensitivity import CORE, DEFAULT, Change, Found, Varied, constants, flips
from benchmarks.sensitivity import report as sensitivity_report
from benchmarks.vgs_defaults import RULES, Factor, Panel, correlation_time
from benchmarks.vgs_defaults import Run as ScaledRun
from benchmarks.vgs_defaults import report as scaling_report
from tests.engine.reporting.records import CLAIM
from tests.support.training import differing, make_model
from verification.probes.noise_and_scaling import noise_keeps_its_ratio_under_scaling


@pytest.mark.parametrize(
    ("ours", "baseline", "verdict"),
    [
        ([100.0] * 5, 100.0, "MET"),
        ([97.0] * 5, 100.0, "MET"),
        ([94.0] * 5, 100.0, "MISSED"),
        ([9.0] * 5, 9.0, "MET"),
        ([8.5] * 5, 9.0, "MISSED"),
        ([60.0, 101.0, 101.0, 101.0, 101.0], 100.0, "MISSED"),
    ],
    ids=["equal", "3 % less", "6 % less", "both lost", "lost more", "one seed fails"],
)
def test_learning_may_lose_5_percent_of_what_the_baseline_gained(
    ours: list[float], baseline: float, verdict: str
) -> None:
    levels = {("ours", STEPS): ours, ("baseline", STEPS): [baseline] * 5, ("baseline", 0): [10.0] * 5}
    noise = np.random.default_rng(0).normal(size=EPISODES)
    runs = [
        Run(name, environment, seed, steps, list(level + noise))
        for (name, steps), own in levels.items()
        for environment in ENVIRONMENTS
        for seed, level in zip(SEEDS, own, strict=True)
    ]
    page = learning.report(runs)
    assert [line.split(": ")[1] for line in page.splitlines() if line.startswith("## ")] == [verdict] * 3


def test_the_interval_is_over_seeds_drawn_in_pairs() -> None:
    level = np.array([0.0, 100.0, 200.0, 300.0, 400.0])[:, None] + np.zeros((1, 8))
    assert paired_interval(level + 1.0, level) == pytest.approx((1.0, 1.0, 1.0))
    baseline = np.zeros((5, 8))
    ours = np.array([-10.0, 20.0, 20.0, 20.0, 20.0])[:, None] + baseline
    difference, lower, upper = paired_interval(ours, baseline)
    # By hand: the mean of the middle half of five seeds drawn, of which k are the low one (binomial, p = 1/5).
    # P(k >= 4) = 0.7 %, P(k >= 3) = 5.8 %, so 2.5 % from below lies at k = 3, whose middle half holds 14 low of 20.
    assert (difference, upper) == (20.0, 20.0)
    assert lower == pytest.approx((14 * -10 + 6 * 20) / 20)


@pytest.mark.parametrize(
    ("scores", "chosen"),
    [
        ((0.0, 0.0), "Adam"),
        ((1.0, 0.0), "AdaptiveUPGD"),
        ((-1.0, 0.0), "Adam"),
        ((1.0, -1.0), "Adam"),
    ],
    ids=["alike", "better in one", "worse in one", "better in one and worse in another"],
)
def test_the_simpler_default_stays_unless_the_other_is_better_somewhere_and_worse_nowhere(
    scores: tuple[float, float], chosen: str
) -> None:
    at = dict(zip(ENVIRONMENTS, (*scores, 0.0), strict=True))
    runs = [
        Run(name, environment, seed, defaults.STEPS, [at[environment] if name == "AdaptiveUPGD" else 0.0] * 4)
        for name in defaults.COMBINATIONS
        for environment in ENVIRONMENTS
        for seed in defaults.SEEDS
    ]
    (line,) = [each for each in defaults.report(runs).splitlines() if "AdaptiveUPGD, against Adam |" in each]
    assert line.endswith(f"| {chosen} |")


HEALTHY = {seed: Effect("", seed, 100.0, f"healthy {seed}") for seed in effects.SEEDS}
FAULTY = [Effect("forgets", seed, 80.0 - 20.0 * seed, f"faulty {seed}", executions=3) for seed in (0, 1)]
STOPPED = [replace(each, error="KeyError: 'x'", length=0.0) for each in FAULTY]


@pytest.mark.parametrize(
    ("runs", "limits", "said"),
    [
        (FAULTY, (-31.0, 29.0), "episode length -30 % (seeds: -40 to -20), no more than chance"),
        (FAULTY, (-29.0, 29.0), "episode length -30 % (seeds: -40 to -20), more than chance"),
        ([replace(each, length=100.0) for each in FAULTY], (0.0, 0.0), "weights differ, episodes are as long"),
        (
            [replace(each, executions=0) for each in FAULTY],
            (0.0, 0.0),
            "none seen: this run does not execute the code",
        ),
        (
            [replace(each, digest=HEALTHY[each.seed].digest) for each in FAULTY],
            (0.0, 0.0),
            "none seen: the final weights are the same bit for bit",
        ),
        (STOPPED, (0.0, 0.0), "every run stops: KeyError: 'x'"),
        (
            [replace(each, error="SettingError: x") for each in STOPPED],
            (0.0, 0.0),
            "every run stops at a check of rlcore, which another system may lack: SettingError: x",
        ),
        (
            [FAULTY[0], STOPPED[1]],
            (-50.0, 0.0),
            "episode length -20 % (seeds: -20 to -20), no more than chance; 1 of 2 runs stop: KeyError: 'x'",
        ),
    ],
)
def test_an_effect_is_put_into_words(runs: list[Effect], limits: tuple[float, float], said: str) -> None:
    assert effect_in_words(runs, HEALTHY, limits) == said


def test_the_range_of_chance_is_a_prediction_interval() -> None:
    # Means of -5, 0 and 5: sd 5, and 4.303 is the 97.5 % quantile of Student's t with 2 degrees of freedom.
    others = [
        Effect(name, seed, 100.0 + change + 3.0 * (1 - 2 * seed), f"{name} {seed}")
        for name, change in zip(CHANCE, (-5.0, 0.0, 5.0), strict=False)
        for seed in (0, 1)
    ]
    half = 4.303 * 5.0 * (4 / 3) ** 0.5
    assert effects.chance([*HEALTHY.values(), *others]) == pytest.approx((-half, half), rel=1e-3)
    assert effects.chance([*HEALTHY.values(), *others[:2]]) == (-np.inf, np.inf)


@pytest.mark.parametrize("error", ["", "KeyError: 'x'"])
def test_a_seed_without_a_complete_healthy_run_is_an_error(error: str) -> None:
    runs = [each for each in HEALTHY.values() if each.seed != 1]
    runs += [replace(HEALTHY[1], error=error, length=0.0)] if error else []
    with pytest.raises(ValueError, match="seed 1 has no complete run without a defect"):
        effects.report([*runs, *FAULTY], {"forgets": [CLAIM]})


@pytest.mark.parametrize(
    ("side", "ratio", "verdict"),
    [("at most", 2.0, "MET"), ("at most", 2.01, "MISSED"), ("at least", 2.0, "MET"), ("at least", 1.99, "MISSED")],
)
def test_a_target_of_speed_is_met_on_its_own_side(side: str, ratio: float, verdict: str) -> None:
    figures = {"ratio": ratio, "least": 1.0, "most": 3.0, "floor": None, "ours_s": 1.0, "reference_s": 1.0, "rounds": 3}
    target = {"bound": 2.0, "side": side, "limited_by": ""}
    page = speed.report({"bench_x.py::bench_step[a]": {**figures, "target": target}})
    row = next(line for line in page.splitlines() if line.startswith("| step[a]"))
    assert row.split("|")[5].strip() == verdict


@pytest.mark.parametrize(
    ("value", "factor", "expected"), [(5, 0.25, 1), (1, 0.25, 1), (0.5, 4.0, 2.0), ([16], 2.0, [32])]
)
def test_a_changed_number_is_multiplied_and_an_integer_stays_one(value: Any, factor: float, expected: Any) -> None:
    assert Change(CORE, "x", factor).of(value) == expected
    assert type(Change(CORE, "x", factor).of(value)) is type(expected)


@pytest.mark.parametrize(
    ("name", "factor", "attribute", "expected"),
    [
        ("max_grad_norm", 4.0, "max_grad_norm", 2.0),
        ("vgs_warmup_steps", DEFAULT, "vgs_warmup_steps", 100),
        ("policy_kwargs.lstm_hidden_size", 2.0, "policy_kwargs", {"lstm_hidden_size": 32, "net_arch": [16]}),
        ("n_envs", 2.0, "n_envs", 6),
    ],
)
def test_a_model_is_built_with_one_setting_changed(name: str, factor: float, attribute: str, expected: Any) -> None:
    make = Varied(change=Change(CORE, name, factor))
    assert getattr(make.model(0), attribute) == expected
    assert (make.seen["n_steps"], make.seen["n_envs"], make.seen["vgs_warmup_steps"]) == (32, 3, 4)


def test_changed_constants_are_those_that_a_probe_and_its_helpers_read() -> None:
    module = noise_keeps_its_ratio_under_scaling.__module__
    found = {name for place, name in constants(noise_keeps_its_ratio_under_scaling) if place == module}
    assert found == {"STEPS", "NOISE.sigma"}


def test_a_flip_is_another_verdict_and_of_a_figure_the_opposite() -> None:
    base = Found(claim="INT-04", verdict="CONFIRMED", grade="CURED")
    figure = Found(claim="FIG-01", verdict="REFUTED")
    others = [
        Found(CORE, "gamma", 2.0, "INT-04", "CONFIRMED", "PARTIAL"),
        Found(CORE, "gamma", 4.0, "INT-04", "CONFIRMED", "CURED"),
        Found(CORE, "gamma", 2.0, "FIG-01", "UNDECIDED"),
        Found(CORE, "gamma", 4.0, "FIG-01", "CONFIRMED"),
    ]
    assert flips([base, figure, *others]) == [(base, others[0]), (figure, others[3])]


def test_a_page_of_other_settings_says_how_many_changes_are_planned_and_of_which_claims_none_is_measured() -> None:
    found = [
        Found(claim="INT-04", verdict="CONFIRMED", planned=12),
        Found(CORE, "gamma", 2.0, "INT-04", "REGRESSED"),
        Found(CORE, "gamma", 4.0, "INT-04", "CONFIRMED"),
        Found(claim="ASR-01", verdict="REFUTED", planned=0),
    ]
    claims = [replace(CLAIM, id=each) for each in ("INT-04", "ASR-01", "FIG-01")]
    text = sensitivity_report(found, {"all": claims})
    assert "2 of 12 planned changes of 2 claims are measured. None is measured of: FIG-01." in text
    assert "| INT-04 | 2 | 12 | 1 |" in text


def test_the_factor_of_a_scaling_rule_stops_at_the_floor_or_at_the_cap_whichever_comes_first() -> None:
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


def test_the_share_of_steps_at_the_least_factor_is_shown_for_each_scaling_rule() -> None:
    values = np.ones((4, len(RULES)))
    values[:, 0] = [10.0, 10.0, 10.0, 70.0]
    text = scaling_report([ScaledRun("Some-v0", 64, values)], [Factor(0.1, 0.1, 50.0), Factor(0.1, 0.1, 100.0)], "x")
    row = next(line for line in text.splitlines() if line.startswith("| squared_mean | mean | 10 "))
    cells = [cell.strip() for cell in row.split("|")]
    assert (cells[4].split()[0], cells[5]) == ("0.5", "25%")
    assert (cells[7].split()[0], cells[8]) == ("0.5", "0%")


def test_watching_scaling_rules_changes_no_gradient() -> None:
    watched = make_model()
    panel = Panel(watched)
    watched.variance_gradient_scaler = panel
    watched.learn(48)
    plain = make_model(variance_gradient_scaling=False).learn(48)
    assert np.shape(panel.rows) == (panel.step_count, len(RULES)) == (4, len(RULES))
    assert min(panel.rows[-1]) > 0.0
    assert differing(watched.get_parameters()["policy"], plain.get_parameters()["policy"]) == []
