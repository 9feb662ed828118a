"""What the page on effects says of the runs of a defect."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.effects import (
    CHANCE,
    SEEDS,
    SHOWN,
    Effect,
    chance,
    defects,
    effect_in_words,
    effects_file,
    effects_of_claims,
    in_short,
    read,
    report,
)
from tests.engine.reporting.records import CLAIM, PROJECT

HEALTHY = {seed: Effect("", seed, 100.0, f"healthy {seed}") for seed in SEEDS}
FAULTY = [Effect("forgets", seed, 80.0 - 20.0 * seed, f"faulty {seed}", executions=3) for seed in (0, 1)]
OTHERS = [
    Effect(name, seed, 100.0 + change + 3.0 * (1 - 2 * seed), f"{name} {seed}")
    for name, change in zip(CHANCE, (-5.0, 0.0, 5.0, -5.0, 0.0, 5.0), strict=True)
    for seed in (0, 1)
]
"""Mean changes of -5, 0 and 5 percent."""
STOPPED = [replace(each, error="KeyError: 'x'", length=0.0) for each in FAULTY]


@pytest.mark.parametrize(
    ("runs", "told"),
    [
        (FAULTY, "episode length -30 % (seeds: -40 to -20), no more than chance"),
        ([replace(each, length=100.0) for each in FAULTY], "weights differ, episodes are as long"),
        ([replace(each, executions=0) for each in FAULTY], "none seen: this run does not execute the code"),
        (
            [replace(each, digest=HEALTHY[each.seed].digest) for each in FAULTY],
            "none seen: the final weights are the same bit for bit",
        ),
        (STOPPED, "every run stops: KeyError: 'x'"),
        (
            [replace(each, error="SettingError: x") for each in STOPPED],
            "every run stops at a check of rlcore, which another system may lack: SettingError: x",
        ),
        (
            [FAULTY[0], STOPPED[1]],
            "episode length -20 % (seeds: -20 to -20), no more than chance; 1 of 2 runs stop: KeyError: 'x'",
        ),
    ],
)
def test_an_effect_is_put_into_words(runs: list[Effect], told: str) -> None:
    assert effect_in_words(runs, HEALTHY) == told


def test_the_page_has_a_row_for_each_defect_with_runs() -> None:
    claims = {"forgets": [replace(CLAIM, title="State is forgotten")], "unknown": [replace(CLAIM, id="TOY-02")]}
    text = report([*HEALTHY.values(), *OTHERS, *FAULTY], claims)
    assert "Without a defect, episodes are 100 to 100 steps long at the end." in text
    assert "| TOY-01 | State is forgotten | episode length -30 % (seeds: -40 to -20), more than chance |" in text
    assert "Chance alone changes their length by -12 to +12 %." in text
    assert "TOY-02" not in text


@pytest.mark.parametrize("error", ["", "KeyError: 'x'"])
def test_a_seed_without_a_complete_healthy_run_is_an_error(error: str) -> None:
    runs = [each for each in HEALTHY.values() if each.seed != 1]
    runs += [replace(HEALTHY[1], error=error, length=0.0)] if error else []
    with pytest.raises(ValueError, match="seed 1 has no complete run without a defect"):
        report([*runs, *FAULTY], {"forgets": [CLAIM]})


def test_the_range_of_chance_is_a_prediction_interval() -> None:
    # Means of -5, 0 and 5: sd 5, and 4.303 is the 97.5 % quantile of Student's t with 2 degrees of freedom.
    half = 4.303 * 5.0 * (4 / 3) ** 0.5
    assert chance([*HEALTHY.values(), *OTHERS[:6]]) == pytest.approx((-half, half), rel=1e-3)


def test_without_runs_by_chance_no_effect_is_more_than_chance() -> None:
    assert chance([*HEALTHY.values(), *OTHERS[:2]]) == (-np.inf, np.inf)
    assert effect_in_words(FAULTY, HEALTHY, (-29.0, 29.0)).endswith(", more than chance")
    assert effect_in_words(FAULTY, HEALTHY, (-31.0, 29.0)).endswith("no more than chance")


def test_an_error_is_one_short_line_without_folders() -> None:
    error = ValueError("/tmp/x1/members/one.zip: broken\n" + "word " * 40)
    assert in_short(error).startswith("ValueError: one.zip: broken word word")
    assert in_short(error).endswith(" ...")
    assert len(in_short(error)) <= SHOWN


def test_the_committed_page_and_texts_follow_from_the_committed_runs() -> None:
    folder, claims = Path(PROJECT.settings.reports) / "measured", defects(PROJECT)
    runs = read(folder / "effects.json")
    assert len(runs) > len(CHANCE) * len(SEEDS)
    assert (folder / "effects.md").read_text(encoding="utf-8") == report(runs, claims)
    effects = effects_file(effects_of_claims(runs, claims))
    assert (PROJECT.folder / "effects.toml").read_text(encoding="utf-8") == effects
