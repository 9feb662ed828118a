"""What is wrong with a record, and the exit code of all problems together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rlverify.gating.problem_rules import compared, notes_of, problems_of
from rlverify.records.claims import FixGrade, Verdict
from rlverify.records.measured import Evidence, VariantEvidence
from rlverify.records.problems import Problem, ProblemKind, exit_code_of, outcome_of, with_advice
from rlverify.records.runs import Variant
from rlverify.reporting.record import Record
from tests.report.records import CLAIM, MISFIT, figure, measured, simple

GOOD = measured(simple(1), healthy=2, faulty=0)
FELL, STALE, HARNESS = (
    Problem("A-1", 1, "REFUTED, expected CONFIRMED", "verdict"),
    Problem("A-2", 1, "has no committed evidence", "stale", "run `rlverify audit --update`"),
    Problem("A-3", 2, "ERROR"),
)


def evidence_of(record: Record) -> Evidence:
    assert record.evidence is not None
    return record.evidence


def with_variant(name: Variant, **changes: Any) -> Record:
    """The good record after changing one of its variants."""
    variants = [replace(each, **changes) if each.variant == name else each for each in evidence_of(GOOD).variants]
    return replace(GOOD, evidence=replace(evidence_of(GOOD), variants=tuple(variants)))


@pytest.mark.parametrize(
    ("problems", "exit_code"),
    [
        ([], 0),
        ([STALE], 1),
        ([FELL], 1),
        ([HARNESS], 2),
        ([STALE, HARNESS], 2),
        ([FELL, HARNESS], 1),
        ([HARNESS, STALE, replace(FELL, kind="values")], 1),
    ],
)
def test_a_fallen_claim_outranks_the_harness_and_that_what_is_out_of_date(
    problems: list[Problem], exit_code: int
) -> None:
    assert exit_code_of(problems) == exit_code


@pytest.mark.parametrize(("kind", "kept"), [("healthy", False), ("verdict", False), ("grade", False), ("values", True)])
def test_after_a_regression_nothing_advises_to_commit_it(kind: ProblemKind, kept: bool) -> None:
    problems = [replace(FELL, kind=kind), STALE]
    assert (with_advice(problems)[1] == STALE) is kept
    assert ("--update" in str(outcome_of(problems))) is kept


TROUBLES: list[tuple[Record, Verdict, ProblemKind]] = [
    (with_variant("healthy", runs=1, errors=("seed 1: boom",)), Verdict.ERROR, "healthy"),
    (with_variant("faulty", runs=1, errors=("seed 1: boom",)), Verdict.ERROR, "verdict"),
    (with_variant("healthy", held_runs=1), Verdict.UNDECIDED, "healthy"),
    (with_variant("faulty", held_runs=1), Verdict.UNDECIDED, "verdict"),
    (with_variant("faulty", reached=False), Verdict.UNREACHED, "verdict"),
]


@pytest.mark.parametrize(("record", "verdict", "kind"), TROUBLES)
def test_a_claim_that_cannot_be_measured_any_more_fell_and_one_that_never_could_is_trouble_of_the_harness(
    record: Record, verdict: Verdict, kind: ProblemKind
) -> None:
    (fell,) = problems_of(record, evidence_of(GOOD))
    assert (fell.exit_code, fell.kind) == (1, kind)
    assert fell.sentence.startswith(f"{verdict.value}, expected CONFIRMED")
    for committed in (None, evidence_of(measured(simple(1), healthy=2, faulty=2))):
        (trouble,) = problems_of(record, committed)
        assert (trouble.exit_code, trouble.kind) == (2, "other")


@pytest.mark.parametrize("committed", [None, evidence_of(GOOD)])
def test_a_stale_pin_is_out_of_date(committed: Evidence | None) -> None:
    (problem,) = problems_of(with_variant("faulty", runs=0, stale="pins something else"), committed)
    assert (problem.exit_code, problem.kind, problem.sentence) == (1, "pin", "STALE, pins something else")


def test_violated_healthy_code_is_named_as_such_and_its_fix_is_not_graded() -> None:
    claim = replace(CLAIM, expected_fix_grade=FixGrade.CURED)
    regressed = measured(claim, healthy=0, faulty=0, documented_fix=0)
    assert [(each.kind, each.sentence) for each in problems_of(regressed)] == [
        ("healthy", "REGRESSED, expected CONFIRMED")
    ]
    refuted = measured(simple(4, fault=None), healthy=0)
    assert [each.kind for each in problems_of(refuted)] == ["healthy"]
    nothing_found = measured(simple(1), healthy=2, faulty=2)
    assert [each.kind for each in problems_of(nothing_found)] == ["verdict"]
    graded = measured(claim, healthy=2, faulty=0, documented_fix=0)
    assert [each.kind for each in problems_of(graded)] == ["grade"]


def test_other_values_make_a_claim_fall_and_other_code_alone_does_not() -> None:
    committed = evidence_of(GOOD)
    other_code = replace(GOOD, changed=("toy:restore",))
    assert problems_of(other_code, committed) == compared(other_code, committed) == []
    healthy, faulty = committed.variants
    other = replace(faulty, symptoms=tuple(replace(each, after="7") for each in faulty.symptoms))
    (values,) = compared(replace(other_code, evidence=replace(committed, variants=(healthy, other))), committed)
    assert values.kind == "values"
    assert values.sentence.startswith("differs from the committed evidence: faulty: 'count | all' observed 7")
    assert values.remedy == "if that is right, run `rlverify audit --update`"
    assert compared(measured(simple(1), healthy=0, faulty=0), committed) == []  # which has fallen by its verdict


def test_evidence_for_another_claim_is_stale_and_none_at_all_too() -> None:
    (stale,) = problems_of(replace(GOOD, misfits=(MISFIT,)))
    assert (stale.kind, stale.sentence, stale.remedy) == ("stale", f"STALE, {MISFIT}", "run `rlverify audit --update`")
    (missing,) = compared(GOOD, None)
    assert (missing.kind, missing.sentence) == ("stale", "has no committed evidence")
    assert not stale.fell
    assert not missing.fell


def test_stale_figures_are_a_note_which_gives_no_advice_after_a_regression() -> None:
    stale = replace(figure(-2.0, 3.0), misfits=(MISFIT,))
    assert problems_of(stale) == []
    assert "--update" in notes_of([stale])[0]
    assert notes_of([stale], advise=False) == ["TOY-09: STALE, measured for other settings of the claim"]


def test_a_variant_without_runs_is_no_evidence() -> None:
    empty = VariantEvidence("healthy", 0, 0, None, (), ("seed 0: boom",))
    record = replace(GOOD, evidence=replace(evidence_of(GOOD), variants=(empty,)))
    assert problems_of(record, evidence_of(GOOD))[0].kind == "healthy"
