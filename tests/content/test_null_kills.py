"""A test that detects a fault does not fail when the same member is replaced by itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

from rlverify.kill_matrix.sessions import run_under_faults
from rlverify.project.content import open_project
from rlverify.records.claims import Claim, FixGrade, Verdict

ROOT = Path(__file__).parents[2]
PROJECT = open_project(ROOT)
ASKS_WHERE_A_WARNING_COMES_FROM = {
    "tests/core/optim/test_scaler.py::test_reset_forgets_statistics_and_what_is_pending",
}
"""Tests that fail whenever another function is between a member and its caller, although nothing else changes."""


def killing_tests() -> Mapping[str, Mapping[str, set[str]]]:
    """By file: every fault that a claim expects to be detected, and the tests of that file that must detect it."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for claim in PROJECT.claims:
        for test in claim.killed_by:
            if claim.fault is not None:
                found[test.partition("::")[0]][claim.fault].add(test)
            if claim.documented_fix is not None and claim.expected_fix_grade is not FixGrade.CURED:
                found[test.partition("::")[0]][claim.documented_fix].add(test)
    return {file: dict(faults) for file, faults in found.items()}


KILLING_TESTS = killing_tests()


def test_every_file_with_killing_tests_is_found() -> None:
    assert len(KILLING_TESTS) > 10
    assert {"bug-01-padding-kept-in-predictions", "bug-10-scaler-state-not-saved"} <= {
        fault for faults in KILLING_TESTS.values() for fault in faults
    }


def test_what_asks_for_the_file_of_a_warning_still_kills_something() -> None:
    named = {test for faults in KILLING_TESTS.values() for tests in faults.values() for test in tests}
    assert named >= ASKS_WHERE_A_WARNING_COMES_FROM


@pytest.mark.slow
@pytest.mark.parametrize("file", sorted(KILLING_TESTS))
def test_the_null_faults_of_the_same_members_survive(file: str) -> None:
    asked = {fault: tests - ASKS_WHERE_A_WARNING_COMES_FROM for fault, tests in KILLING_TESTS[file].items()}
    faults = [PROJECT.fault(name) for name, tests in asked.items() if tests]
    of_member = {(fault.owner, fault.member): fault.name for fault in faults}
    tests = sorted(set().union(*asked.values()))
    assert tests
    kill = run_under_faults([*of_member.values()], tests, root=ROOT, null=True)
    assert kill.fate == "survived", kill.output


def never_bugs() -> list[Claim]:
    """The claims whose fault is expected to have no observable effect."""
    expected = [claim for claim in PROJECT.claims if claim.expected_verdict is Verdict.NOT_REPRODUCED]
    return [claim for claim in expected if claim.kind != "null"]


def test_bugs_that_never_were_are_found() -> None:
    assert {"BUG-06", "PPO-06-2"} <= {claim.id for claim in never_bugs()}


@pytest.mark.slow
@pytest.mark.parametrize("claim", never_bugs(), ids=lambda claim: claim.id)
def test_a_bug_that_never_was_survives_every_test_in_the_files_of_its_area(claim: Claim) -> None:
    """The matrix plants it under the named tests of its area; here, the other tests of their files run as well."""
    assert claim.fault is not None
    of_area = [test for each in PROJECT.claims if each.area == claim.area for test in each.killed_by]
    kill = run_under_faults([claim.fault], sorted({test.partition("::")[0] for test in of_area}), root=ROOT)
    elsewhere = {test for each in PROJECT.claims if each.fault == claim.fault for test in each.killed_by}
    assert kill.executions > 0
    assert not kill.errors, kill.output
    assert {test.partition("[")[0] for test in kill.failed} <= elsewhere, kill.output
    assert kill.fate == ("killed" if elsewhere else "survived"), kill.output
