"""What is changed under other settings, and what the page says of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import sensitivity
from benchmarks.sensitivity import CORE, DEFAULT, Change, Found, Varied, constants, flips, report
from verification.probes.noise_and_scaling import noise_keeps_its_ratio_under_scaling

BASE = Found(claim="INT-04", verdict="CONFIRMED", grade="CURED")


@pytest.mark.parametrize(
    ("value", "factor", "expected"), [(5, 0.25, 1), (1, 0.25, 1), (0.5, 4.0, 2.0), ([16], 2.0, [32])]
)
def test_a_number_is_multiplied_and_an_integer_stays_one(value: Any, factor: float, expected: Any) -> None:
    assert Change(CORE, "x", factor).of(value) == expected
    assert type(Change(CORE, "x", factor).of(value)) is type(expected)


@pytest.mark.parametrize(
    ("name", "factor", "attribute", "expected"),
    [
        ("n_steps", 0.5, "n_steps", 16),
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


def test_constants_are_those_that_a_probe_and_its_helpers_read() -> None:
    module = noise_keeps_its_ratio_under_scaling.__module__
    found = {name for place, name in constants(noise_keeps_its_ratio_under_scaling) if place == module}
    assert found == {"STEPS", "NOISE.sigma"}


def test_a_flip_is_another_verdict_and_of_a_figure_the_opposite() -> None:
    figure = Found(claim="FIG-01", verdict="REFUTED")
    others = [
        Found(CORE, "gamma", 2.0, "INT-04", "CONFIRMED", "PARTIAL"),
        Found(CORE, "gamma", 4.0, "INT-04", "CONFIRMED", "CURED"),
        Found(CORE, "gamma", 2.0, "FIG-01", "UNDECIDED"),
        Found(CORE, "gamma", 4.0, "FIG-01", "CONFIRMED"),
    ]
    assert flips([BASE, figure, *others]) == [(BASE, others[0]), (figure, others[3])]


def test_the_page_has_a_row_for_the_changes_with_one_outcome() -> None:
    others = [Found(CORE, "gamma", factor, "INT-04", "REGRESSED") for factor in (2.0, DEFAULT)]
    page = report([BASE, Found(claim="INT-01", verdict="CONFIRMED"), *others])
    assert "| INT-04 | `gamma` | times 2, core's default | CONFIRMED, fix CURED | REGRESSED |" in page
    assert "2 verdicts of 2 claims were measured. No change of a setting changed: INT-01." in page


def test_the_committed_file_can_be_read() -> None:
    if sensitivity.FILE.is_file():
        assert all(Found(**each).claim for each in json.loads(sensitivity.FILE.read_text(encoding="utf-8")))
