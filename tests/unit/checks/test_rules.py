"""Every rule finds its own defect in a tiny subject and nothing in a clean one."""

from __future__ import annotations

import pytest

from rlverify.checks import Status, check_algorithm, check_subject
from rlverify.checks.rule import RULES
from tests.meta.tiny_trainer import CLEAN, DEFECTS

OWN = [name for name, rule in RULES.items() if rule.family in ("resume", "identity", "isolation")]
OWN += ["deterministic", "observing_changes_nothing", "pieces_equal_whole"]
"""The rules that these subjects are about; those of other families have tests of their own."""


def test_every_rule_passes_on_the_clean_subject_and_is_proven() -> None:
    records = check_subject(CLEAN, checks=OWN)
    assert {each.check: each.outcome for each in records if each.status is not Status.PASS} == {}
    assert {each.check: each.unproven for each in records if each.unproven} == {}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_found_by_its_rules_only(name: str) -> None:
    factory, adapter, places = DEFECTS[name]
    records = check_algorithm(factory, name="faulty", adapter=adapter, checks=OWN)
    found = {each.check: each.finding.where for each in records if each.status is Status.FAIL}
    assert found == places
    assert {each.status for each in records} <= {Status.FAIL, Status.PASS, Status.INCONCLUSIVE}
    assert [each.check for each in records if each.status is Status.PASS and each.unproven] == []


def test_every_rule_has_a_defect() -> None:
    assert {check for _, _, places in DEFECTS.values() for check in places} == set(OWN)


def test_a_lost_part_of_the_state_is_named() -> None:
    factory, adapter, _ = DEFECTS["generator is not saved"]
    (record,) = check_algorithm(factory, adapter=adapter, checks=["resume_is_exact"])
    assert record.finding.why == "restoring generator makes it exact"
    assert "lost: generator" in record.finding.seen
