"""The order in which fallen claims are reported: each key of it, and which key counts more."""

from __future__ import annotations

import importlib
import sys
from copy import copy
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest

from rlverify.gating.audit import Audit
from rlverify.gating.fallen import outcome_of_audit
from rlverify.project.content import Project
from rlverify.records.measured import Evidence, SymptomEvidence, VariantEvidence
from rlverify.records.problems import Problem, ProblemKind
from rlverify.verdicts.verdict import Record
from tests.report.records import simple

FAULT = "restored-forgets"
ITS_TARGET = "toyproject.target:Average.restored"
ITS_MODULE = "toyproject.target"
ANOTHER = "toyproject.target:clip"


@dataclass(frozen=True)
class Fell:
    """What decides where a fallen claim is reported; without arguments, one that comes before all others."""

    problems: tuple[ProblemKind, ...] = ("healthy",)
    is_null: bool = False
    crashed: bool = False
    changed: str = ITS_TARGET
    part_of: str = ""
    severity: str = "critical"
    violated: int = 2
    fault: str = FAULT

    def record(self, claim_id: str) -> Record:
        claim = simple(
            1, id=claim_id, kind="null" if self.is_null else "defect", fault=self.fault, part_of=self.part_of,
            severity=self.severity,
        )  # fmt: skip
        symptoms = tuple(SymptomEvidence(f"symptom {n}", int(n >= self.violated), 1, None, None) for n in range(2))
        healthy = VariantEvidence("healthy", 1, 0, None, symptoms, ("boom",) if self.crashed else ())
        broken = tuple(replace(each, held_runs=0) for each in symptoms)  # which must not count
        faulty = VariantEvidence("faulty", 1, 0, True, broken)
        return Record(claim, Evidence(claim_id, (0,), (healthy, faulty)), changed=(self.changed,))


WORST = Fell()
KEYS: dict[str, Fell] = {
    "kind of problem": replace(WORST, problems=("verdict",)),
    "null fault": replace(WORST, is_null=True),
    "crash": replace(WORST, crashed=True),
    "fewer violated symptoms": replace(WORST, violated=1),
    "fault in other code than what changed": replace(WORST, changed=ANOTHER),
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
        outcome = outcome_of_audit(project, Audit(measured, problems, len(measured)))
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


@pytest.mark.parametrize("changed", [ITS_TARGET, ITS_MODULE])
def test_a_fault_of_an_inherited_member_is_in_what_defines_it(changed: str, toyproject: Project) -> None:
    inherited = replace(toyproject.fault(FAULT), name="heir-forgets", owner="toyproject.target:Heir")
    project = copy(toyproject)
    project.__dict__["faults"] = {**toyproject.faults, inherited.name: inherited}
    heir = replace(WORST, fault=inherited.name)
    assert_order(project, replace(heir, changed=changed), replace(heir, changed=ANOTHER))


def test_a_fault_whose_target_is_gone_is_in_nothing_that_changed(toyproject: Project) -> None:
    gone = replace(toyproject.fault(FAULT), name="gone", owner="toyproject.target:Gone")
    project = copy(toyproject)
    project.__dict__["faults"] = {**toyproject.faults, gone.name: gone}
    assert_order(project, WORST, replace(WORST, fault=gone.name))


@pytest.mark.parametrize(
    ("owner", "member"),
    [("toyproject.target", "Average"), ("toyproject.lazy:Thing", "low"), ("toyproject.lazy", "low")],
    ids=["a class now", "not imported, a method", "not imported, a function"],
)
def test_a_fault_whose_target_cannot_be_looked_at_is_in_what_it_names(
    owner: str, member: str, toyproject: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is imported for it: the module may crash or print."""
    (tmp_path / "lazy.py").write_text("print('imported')\noops\n")
    monkeypatch.setattr("toyproject.__path__", [*importlib.import_module("toyproject").__path__, str(tmp_path)])
    odd = replace(toyproject.fault(FAULT), name="odd", owner=owner, member=member)
    project = copy(toyproject)
    project.__dict__["faults"] = {**toyproject.faults, odd.name: odd}
    named = f"{owner}.{member}" if ":" in owner else f"{owner}:{member}"
    assert_order(project, replace(WORST, fault="odd", changed=named), replace(WORST, changed=ANOTHER))
    assert "toyproject.lazy" not in sys.modules


def test_the_worst_problem_of_a_claim_counts(toyproject: Project) -> None:
    assert_order(toyproject, replace(WORST, problems=("values", "verdict")), replace(WORST, problems=("grade",)))


@pytest.mark.parametrize(("worse", "better"), [*pairwise(("Critical (P0)", "HIGH", "medium", "Low"))])
def test_severities_are_read_in_any_case(worse: str, better: str, toyproject: Project) -> None:
    assert_order(toyproject, replace(WORST, severity=worse), replace(WORST, severity=better))


@pytest.mark.parametrize("unknown", ["", "unknown"])
def test_an_unknown_severity_counts_as_medium(unknown: str, toyproject: Project) -> None:
    assert_order(toyproject, replace(WORST, severity="high"), replace(WORST, severity=unknown))
    assert_order(toyproject, replace(WORST, severity=unknown), replace(WORST, severity="low"))


def test_a_fault_in_the_module_whose_own_code_changed_counts_as_one_in_what_changed(toyproject: Project) -> None:
    assert_order(toyproject, replace(WORST, changed=ITS_MODULE), replace(WORST, changed=ANOTHER))
