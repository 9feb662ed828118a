"""Ranking, confidence and the phases of the action plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rlverify.records.claims import Basis, Scale, Severity
from rlverify.verdicts.verdict import Record
from tests.engine.reporting.records import CLAIM, figure, measured, simple
from verification.pages.ranking import Cause, faults, phase, plan, ranked, wrong_statements


def bug(number: int, severity: Severity | None = "high", **changes: Any) -> Record:
    return measured(simple(number, assessed=severity, **{"action": "Fix it.", **changes}), healthy=2, faulty=0)


def wrong(number: int, severity: Severity | None = "high", **changes: Any) -> Record:
    claim = simple(number, fault=None, assessed=severity, **{"action": "Do not rely on it.", **changes})
    return measured(replace(claim, kind="assurance"), healthy=0)


@pytest.mark.parametrize(
    ("basis", "scale", "expected"),
    [
        ("code", "tensor", "high"),
        ("behaviour", "training", "high"),
        ("formula", "toy", "medium"),
        ("reconstruction", "training", "low"),
        ("implied", "tensor", "low"),
        (None, None, "high"),
    ],
)
def test_confidence_follows_from_basis_and_scale(basis: Basis | None, scale: Scale | None, expected: str) -> None:
    assert bug(2, basis=basis, scale=scale).confidence == expected


@pytest.mark.parametrize(("scale", "expected"), [("training", "high"), ("tensor", "medium"), (None, "medium")])
def test_a_figure_is_sure_only_in_training_runs(scale: Scale | None, expected: str) -> None:
    found = figure(-2.0, 3.0)
    assert replace(found, claim=replace(found.claim, scale=scale)).confidence == expected


def test_severity_ranks_before_confidence_and_confidence_before_the_order() -> None:
    found = [bug(2, "low"), bug(3, None), bug(4, "high", scale="toy"), bug(5), bug(6), bug(7, "critical", scale="toy")]
    assert [record.claim.id for record in ranked(found)] == [f"TOY-0{number}" for number in (7, 5, 6, 4, 2, 3)]


@pytest.mark.parametrize(
    ("record", "is_bug", "is_wrong"),
    [
        (bug(2), True, False),
        (measured(CLAIM, healthy=2, faulty=0, documented_fix=0), True, True),
        (bug(2, kind="assurance"), False, False),
        (bug(2, kind="finding", against_document=True), False, True),
        (measured(simple(2), healthy=2, faulty=2), False, True),
        (measured(simple(2), healthy=0, faulty=0), False, False),
        (wrong(3), False, True),
        (wrong(3, basis="reconstruction"), False, False),
        (wrong(3, basis="implied"), False, False),
        (wrong(3, hedge="may"), False, False),
        (measured(replace(CLAIM, hedge="may"), healthy=2, faulty=0, documented_fix=0), True, True),
    ],
)
def test_real_bugs_and_wrong_statements_are_two_lists(record: Record, is_bug: bool, is_wrong: bool) -> None:
    assert record.is_bug is is_bug
    assert len(faults([record])) == int(is_bug)
    assert len(wrong_statements([record])) == int(is_wrong)


def test_claims_of_one_cause_are_one_finding() -> None:
    cause = Cause("scale-invariance", "A constant factor cancels.")
    found = [wrong(2, "low"), wrong(3, "medium", cause=cause.id), wrong(4, "high", cause=cause.id)]
    first, second = wrong_statements(found, [cause])
    assert [record.claim.id for record in first.records] == ["TOY-04", "TOY-03"]
    assert (first.cause, second.cause) == (cause, None)
    assert first.first.claim.id == "TOY-04"


@pytest.mark.parametrize(
    ("severity", "scale", "expected"),
    [
        ("critical", "training", "now"),
        ("critical", "toy", "now"),
        ("high", "training", "next"),
        ("high", "toy", "later"),
        ("medium", "tensor", "later"),
        ("medium", "toy", "later"),
        ("low", "training", None),
        ("none", "training", None),
        (None, "training", None),
    ],
)
@pytest.mark.parametrize("make", [bug, wrong])
def test_the_phase_follows_from_severity_and_confidence(
    make: Any, severity: Severity | None, scale: Scale, expected: str | None
) -> None:
    record = make(2, severity, scale=scale)
    assert phase(record) == expected
    assert [name for name, found in plan([record]).items() if found] == ([expected] if expected else [])


def test_what_holds_or_has_no_action_is_not_in_the_plan() -> None:
    assert phase(bug(2, action="")) is None
    assert phase(measured(simple(2, assessed="high", action="Fix it."), healthy=2, faulty=2)) == "next"
    assert phase(bug(2, kind="assurance")) is None
