"""A test that detects a fault does not fail when the same member is replaced by itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

from rlverify.kill_matrix.planted_tests import run_under_faults
from rlverify.project.content import open_project
from rlverify.records.claims import FixGrade

ROOT = Path(__file__).parents[2]
PROJECT = open_project(ROOT)
ASKS_WHERE_A_WARNING_COMES_FROM = {
    "tests/unit/optim/test_scaler.py::test_reset_forgets_statistics_and_what_is_pending",
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
    kill = run_under_faults([*of_member.values()], tests, root=ROOT, null=True)
    assert kill.fate == "survived", kill.output
