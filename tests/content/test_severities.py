"""Severities follow from what was measured, by the rule that the action plan publishes, or say why not."""

from __future__ import annotations

import pytest

from rlverify.gating.committed_evidence import Committed
from rlverify.project.settings import toml_of
from rlverify.records.errors import CatalogueError
from rlverify.records.measured import SymptomEvidence, VariantEvidence
from rlverify.verdicts.verdict import Record
from tests.engine.reporting.records import PROJECT, measured, simple
from verification.pages.documents import EFFECTS
from verification.pages.ranking import SEVERITIES, faults, plan, severity_by_rule, wrong_statements

CONTENT = toml_of(PROJECT.folder / EFFECTS, lambda *_: CatalogueError(EFFECTS, "", "", "cannot be read"))
RECORDS = {
    each.claim.id: each
    for each in Committed(PROJECT, PROJECT.paths).records
    if not each.claim.condition_of and (each.is_bug or each.contradicts_document)
}


@pytest.mark.parametrize("claim_id", RECORDS)
def test_a_severity_follows_the_rule_or_says_why_not(claim_id: str) -> None:
    record = RECORDS[claim_id]
    of_bugs = {name: each.claim.assessed for name, each in RECORDS.items() if each.is_bug}
    by_rule = severity_by_rule(record, CONTENT["effects"].get(claim_id, ""), of_bugs)
    assert (record.claim.assessed == by_rule) is not bool(record.claim.assessed_why)


def test_the_plan_has_every_cause_of_medium_severity_or_higher() -> None:
    found = list(RECORDS.values())
    planned = {each.claim.id for due in plan(found).values() for finding in due for each in finding.records}
    grave = [each for each in [*faults(found), *wrong_statements(found)] if each.first.claim.assessed in SEVERITIES[:3]]
    assert [each.first.claim.id for each in grave if planned.isdisjoint(one.claim.id for one in each.records)] == []


def observed(text: str) -> Record:
    """A bug with which this is observed."""
    found = measured(simple(2), healthy=2, faulty=0)
    assert found.evidence is not None
    faulty = VariantEvidence("faulty", 2, 0, True, (SymptomEvidence("x", 0, 2, "right", text),))
    return Record(found.claim, type(found.evidence)("TOY-02", (0, 1), (found.evidence.variants[0], faulty)))


@pytest.mark.parametrize(
    ("record", "effect", "severity"),
    [
        (observed("executed, file read"), "", "critical"),
        (observed("0"), "episode length -33 %, more than chance", "critical"),
        (observed("0"), "episode length -33 %, no more than chance", "high"),
        (observed("0"), "every run stops: KeyError", "high"),
        (observed("0"), "none seen: this run does not execute the code", "medium"),
        (observed("KeyError 'x'"), "none seen: this run does not execute the code", "low"),
        (measured(simple(3, fault=None, kind="assurance", basis="code"), healthy=0), "", "medium"),
        (measured(simple(3, fault=None, kind="assurance", basis="formula"), healthy=0), "", "low"),
    ],
)
def test_the_rule(record: Record, effect: str, severity: str) -> None:
    assert severity_by_rule(record, effect, {}) == severity


@pytest.mark.parametrize(("part_of", "severity"), [("TOY-02", "high"), ("TOY-04", "medium")])
def test_a_fix_that_fails_has_the_severity_of_its_bug(part_of: str, severity: str) -> None:
    fix = simple(3, kind="fix", documented_fix="remembers", part_of=part_of)
    record = measured(fix, healthy=2, faulty=0, documented_fix=0)
    assert severity_by_rule(record, "", {"TOY-02": "high"}) == severity
