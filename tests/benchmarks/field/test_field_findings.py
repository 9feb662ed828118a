"""What the pages of the field report show: which findings, in which order, and the marks of the tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.field.explanations import EXPLANATIONS
from benchmarks.field.findings import LEGEND, counts, findings, matrix
from benchmarks.field.page import HEADER, effect_rows
from benchmarks.field.records import Shown
from rlverify.checks.engine.check_records import CheckRecord, Status
from tests.benchmarks.field.field_example import EFFECT, checked, fail, field_example, proven, record

DESIGNED = "learning_rate_zero_freezes"
"""Fails for TRPO by design."""


def test_findings_are_sorted_by_severity_then_frequency_and_those_by_design_are_last() -> None:
    found = findings(
        [
            checked("TRPO", fail(DESIGNED, "critical"), fail("rare", "medium"), fail("low", "low")),
            checked("PPO", fail("frequent", "medium"), fail("severe", "critical"), fail("high", "high")),
            checked("PPO", fail("frequent", "medium"), variant="awkward"),
        ]
    )
    assert [each.check for each in found] == ["severe", "high", "frequent", "rare", "low", DESIGNED]
    assert [each.severity for each in found[:2]] == ["critical", "high"]


def test_a_failure_by_design_counts_in_full_if_another_algorithm_fails_too() -> None:
    failed = fail(DESIGNED, "critical")
    found = findings([checked("TRPO", failed), checked("PPO", failed, fail("high", "high"))])
    assert [each.check for each in found] == [DESIGNED, "high"]
    assert [bool(case.note) for case in found[0].cases] == [True, False]


def test_only_failures_are_findings() -> None:
    others = [record(status.value, status) for status in Status if status is not Status.FAIL]
    assert findings([checked("PPO", *others)]) == []


def test_the_extent_names_the_algorithms_once_unless_it_is_all_of_them() -> None:
    some, every = fail("some"), fail("every")
    subjects = [
        checked("PPO", some, every),
        checked("PPO", some, every, variant="awkward"),
        checked("A2C", some, every, variant="awkward"),
        checked("DQN", every),
    ]
    extent = {each.check: each.extent for each in findings(subjects)}
    assert extent == {"every": "all 3", "some": "PPO, A2C"}


def test_the_extent_of_a_report_about_one_algorithm_is_its_name() -> None:
    (found,) = findings([checked("PPO", fail("some")), checked("PPO", fail("some"), variant="awkward")])
    assert (found.extent, found.names) == ("PPO", ["PPO"])


def test_effects_are_those_of_this_check() -> None:
    other = replace(EFFECT, steps=1000)
    subjects = [
        checked("PPO", fail("one"), fail("two"), effects={"one": EFFECT}),
        checked("PPO", fail("one"), variant="awkward"),
        checked("DQN", fail("one"), fail("two"), effects={"one": other, "two": EFFECT}),
    ]
    found = {each.check: each.effects for each in findings(subjects)}
    assert found == {"one": [("PPO", EFFECT), ("DQN", other)], "two": [("DQN", EFFECT)]}


def test_the_row_of_an_effect_has_mean_smallest_and_largest() -> None:
    row = ("PPO", "2048", "1, none, 7", "1.00 (0.50 to 1.50)", "200 (100 to 300)", "180 (90 to 250)")
    assert effect_rows([("PPO", EFFECT)]) == [row]
    assert len(row) == len(HEADER)


def test_a_finding_has_its_script_and_its_explanation() -> None:
    shown = Shown("resume_is_exact", "code", "output")
    explained, own = findings([checked("PPO", fail("resume_is_exact"), fail("home_made"))], [shown])
    assert (explained.shown, own.shown) == (shown, None)
    assert explained.explanation is EXPLANATIONS["resume_is_exact"]
    assert own.explanation.headline == "Violated: home_made holds"


@pytest.mark.parametrize(
    ("own", "mark"),
    [
        (proven("it"), "✓"),
        (record("it", Status.PASS, unproven="no fault"), "○"),
        (fail("it"), "✗"),
        (record("it", Status.INCONCLUSIVE), "?"),
        (record("it", Status.NOT_APPLICABLE), "·"),
        (record("it", Status.ERROR), "!"),
    ],
)
def test_each_status_has_a_mark_that_the_legend_explains(own: CheckRecord, mark: str) -> None:
    assert matrix([checked("PPO", own)]) == (["PPO"], [("it", [mark])])
    assert mark in LEGEND


def test_a_failure_by_design_has_a_mark_of_its_own() -> None:
    _, ((_, cells),) = matrix([checked("TRPO", fail(DESIGNED)), checked("PPO", fail(DESIGNED))])
    assert cells == ["✗*", "✗"]
    assert "✗*" in LEGEND


def test_a_cell_has_a_mark_for_each_variant_and_one_for_a_record_that_is_missing() -> None:
    names, rows = matrix(
        [
            checked("PPO", proven("one")),
            checked("PPO", fail("one"), proven("two"), variant="awkward"),
            checked("DQN", problem="its process ended"),
        ]
    )
    assert names == ["PPO", "DQN"]
    assert rows == [("one", ["✓ ✗", "!"]), ("two", ["! ✓", "!"])]


def test_counts_are_of_the_records_of_algorithms() -> None:
    assert counts(field_example().algorithms) == {
        "checks": 15,
        "passed": 8,
        "proven": 4,
        "fail": 5,
        "inconclusive": 1,
        "not applicable": 1,
        "error": 0,
    }
