"""The order in which fallen claims are reported: each key of it, and which key counts more."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import pytest

from rlverify.gating.fallen import outcome_of_audit
from rlverify.project.content import Project
from rlverify.records.measured import Evidence, SymptomEvidence, VariantEvidence
from rlverify.records.problems import Problem, ProblemKind
from rlverify.reporting.outcome import Outcome
from rlverify.verdicts.verdict import Record
from tests.engine.reporting.records import simple

FAULT = "restored-forgets"


@dataclass(frozen=True)
class Fell:
    """What decides where a fallen claim is reported; without arguments, one that comes before all others."""

    problems: tuple[ProblemKind, ...] = ("healthy",)
    is_null: bool = False
    crashed: bool = False
    part_of: str = ""
    severity: str = "critical"
    violated: int = 2

    def record(self, claim_id: str) -> Record:
        claim = simple(
            1, id=claim_id, kind="null" if self.is_null else "defect", fault=FAULT, part_of=self.part_of,
            severity=self.severity,
        )  # fmt: skip
        symptoms = tuple(SymptomEvidence(f"symptom {n}", int(n >= self.violated), 1, None, None) for n in range(2))
        healthy = VariantEvidence("healthy", 1, 0, None, symptoms, ("boom",) if self.crashed else ())
        broken = tuple(replace(each, held_runs=0) for each in symptoms)  # which must not count
        faulty = VariantEvidence("faulty", 1, 0, True, broken)
        return Record(claim, Evidence(claim_id, (0,), (healthy, faulty)))


WORST = Fell()
KEYS: dict[str, Fell] = {
    "kind of problem": replace(WORST, problems=("verdict",)),
    "null fault": replace(WORST, is_null=True),
    "crash": replace(WORST, crashed=True),
    "fewer violated symptoms": replace(WORST, violated=1),
    "part of another claim": replace(WORST, part_of="TOY-09"),
    "severity": replace(WORST, severity="high"),
}
"""Claims that are less urgent by one key, in the order of the keys."""


def assert_order(project: Project, first: Fell, second: Fell) -> None:
    """Whichever of the two is measured first."""
    records = (first.record("FIRST"), second.record("SECOND"))
    problems = tuple(
        Problem(record.claim.id, 1, "fell", kind)
        for record, fell in zip(records, (first, second), strict=True)
        for kind in fell.problems
    )
    for measured in (records, records[::-1]):
        outcome = outcome_of_audit(project, Outcome(measured, problems))
        assert [each.claim.id for each in outcome.fallen] == ["FIRST", "SECOND"]


@pytest.mark.parametrize("key", KEYS)
def test_each_key_decides_between_claims_that_differ_in_it_alone(key: str, toyproject: Project) -> None:
    assert_order(toyproject, WORST, KEYS[key])


@pytest.mark.parametrize(("earlier", "later"), [*pairwise(KEYS)])
def test_each_key_counts_more_than_the_next(earlier: str, later: str, toyproject: Project) -> None:
    assert_order(toyproject, KEYS[later], KEYS[earlier])


@pytest.mark.parametrize(("worse", "better"), [*pairwise(("healthy", "verdict", "grade", "values"))])
def test_healthy_code_comes_before_verdicts_grades_and_values(
    worse: ProblemKind, better: ProblemKind, toyproject: Project
) -> None:
    assert_order(toyproject, replace(WORST, problems=(worse,)), replace(WORST, problems=(better,)))


def test_the_worst_problem_of_a_claim_counts(toyproject: Project) -> None:
    assert_order(toyproject, replace(WORST, problems=("values", "verdict")), replace(WORST, problems=("grade",)))


@pytest.mark.parametrize(("worse", "better"), [*pairwise(("Critical (P0)", "HIGH", "medium", "Low"))])
def test_severities_are_read_in_any_case(worse: str, better: str, toyproject: Project) -> None:
    assert_order(toyproject, replace(WORST, severity=worse), replace(WORST, severity=better))


@pytest.mark.parametrize("unknown", ["", "unknown"])
def test_an_unknown_severity_counts_as_medium(unknown: str, toyproject: Project) -> None:
    assert_order(toyproject, replace(WORST, severity="high"), replace(WORST, severity=unknown))
    assert_order(toyproject, replace(WORST, severity=unknown), replace(WORST, severity="low"))
