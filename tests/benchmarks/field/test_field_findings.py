"""What the pages of the field report show: which findings, in which order, and the marks of the tables."""

from __future__ import annotations

import pytest

from benchmarks.field.explanations import EXPLANATIONS
from benchmarks.field.findings import LEGEND, findings, matrix
from benchmarks.field.records import Shown
from rlverify.checks.engine.check_records import CheckRecord, Status
from tests.benchmarks.field.field_example import checked, fail, proven, record


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
