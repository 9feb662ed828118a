"""Every fault that is expected to be noticed is noticed by tests that know nothing of it, and its null fault is not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from rlverify.kill_matrix.planted_tests import run_under_faults
from rlverify.project.content import Project
from rlverify.records.claims import Claim, FixGrade, Verdict

ROOT = Path(__file__).parents[2]
LABORATORY = Project()
ABOUT_THE_HARNESS = ("meta", "mutation", "report")


@dataclass(frozen=True)
class Expected:
    """A fault and the tests that must notice it: each of them, or of a documented fix, at least one."""

    fault: str
    tests: tuple[str, ...]
    is_fix: bool = False


def expected_kills() -> list[Expected]:
    """The faults of claims expected CONFIRMED, and documented fixes that are expected to leave something broken."""
    kills = []
    for claim in LABORATORY.claims:
        if claim.expected_verdict is Verdict.CONFIRMED and claim.fault is not None:
            kills.append(Expected(claim.fault, claim.killed_by))
            if claim.documented_fix is not None and claim.expected_fix_grade is not FixGrade.CURED:
                kills.append(Expected(claim.documented_fix, claim.killed_by, is_fix=True))
    return list(dict.fromkeys(kills))


def not_failed(tests: Iterable[str], failed: Iterable[str]) -> set[str]:
    """Those of the ids of which nothing failed, no case, no test of that file."""
    return {
        test for test in tests if not any(each == test or each.startswith((f"{test}[", f"{test}::")) for each in failed)
    }


def file_of(test: str) -> str:
    return test.partition("::")[0]


def never_bugs() -> list[Claim]:
    """The claims whose fault is expected to break nothing that anybody could observe."""
    expected = [claim for claim in LABORATORY.claims if claim.expected_verdict is Verdict.NOT_REPRODUCED]
    return [claim for claim in expected if claim.kind != "null"]


def files_of_area(area: str) -> list[str]:
    """The files with tests that kill the other faults of an area."""
    return sorted({file_of(test) for claim in LABORATORY.claims if claim.area == area for test in claim.killed_by})


ASKS_WHERE_A_WARNING_COMES_FROM = {
    "tests/unit/optim/test_scaler.py::test_reset_forgets_statistics_and_what_is_pending",
}
"""Tests that notice whatever stands between a member and its caller, though it changes nothing."""

KILLS = expected_kills()
FILES = sorted({file_of(test) for kill in KILLS for test in kill.tests})


@cache
def helpers() -> list[str]:
    """What the killing tests stand on: every file below tests that is no test, but for the harness's own."""
    found = [path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("*.py")]
    helping = [path for path in found if path.parts[0] not in ABOUT_THE_HARNESS and not path.name.startswith("test_")]
    return sorted(f"tests/{path.as_posix()}" for path in helping)


def test_every_confirmed_claim_names_tests_that_kill_its_fault() -> None:
    assert {"bug-01-padding-kept-in-predictions", "bug-10-scaler-state-not-saved"} <= {each.fault for each in KILLS}
    assert all(kill.tests for kill in KILLS)
    assert {"BUG-04", "BUG-06"} <= {claim.id for claim in never_bugs()}


@pytest.mark.parametrize(
    ("failed", "left"),
    [
        ((), {"a.py::one", "a.py::two"}),
        (("a.py::one[x y]",), {"a.py::two"}),
        (("a.py::one", "a.py::two_more"), {"a.py::two"}),
        (("a.py::one[1]", "a.py::one[2]", "a.py::two"), set()),
    ],
)
def test_a_test_has_failed_if_any_of_its_cases_has(failed: tuple[str, ...], left: set[str]) -> None:
    assert not_failed(["a.py::one", "a.py::two"], failed) == left


@pytest.mark.slow
@pytest.mark.parametrize("expected", KILLS, ids=lambda expected: expected.fault)
def test_the_suite_kills_the_fault(expected: Expected) -> None:
    kill = run_under_faults([expected.fault], expected.tests, root=ROOT)
    assert kill.fate == "killed", kill.output
    left = not_failed(expected.tests, kill.failed)
    assert len(left) < len(expected.tests), kill.output
    if not expected.is_fix:
        assert not left, f"passed, or never ran to their own failure: {sorted(left)}\n{kill.output}"


def test_what_asks_for_the_file_of_a_warning_still_kills_something() -> None:
    assert {test for kill in KILLS for test in kill.tests} >= ASKS_WHERE_A_WARNING_COMES_FROM


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_the_null_faults_of_the_same_members_survive(file: str) -> None:
    here: dict[str, set[str]] = {}
    for kill in KILLS:
        told = {test for test in kill.tests if file_of(test) == file}
        here.setdefault(kill.fault, set()).update(told - ASKS_WHERE_A_WARNING_COMES_FROM)
    faults = [LABORATORY.fault(name) for name, tests in here.items() if tests]
    of_member = {(fault.owner, fault.member): fault.name for fault in faults}
    tests = sorted(set().union(*here.values()))
    kill = run_under_faults([*of_member.values()], tests, root=ROOT, null=True)
    assert kill.fate == "survived", kill.output


@pytest.mark.slow
@pytest.mark.parametrize("claim", never_bugs(), ids=lambda claim: claim.id)
def test_the_fault_of_a_bug_that_never_was_survives_the_tests_of_its_area(claim: Claim) -> None:
    """But for those that another claim names as killers of the same fault, in a case where it does break something."""
    kill = run_under_faults([claim.fault or ""], files_of_area(claim.area), root=ROOT)
    elsewhere = {test for each in LABORATORY.claims if each.fault == claim.fault for test in each.killed_by}
    assert kill.executions > 0
    assert not kill.errors, kill.output
    assert {test.partition("[")[0] for test in kill.failed} <= elsewhere, kill.output
    assert kill.fate == ("killed" if elsewhere else "survived"), kill.output


def test_the_files_that_tests_stand_on_are_found() -> None:
    assert {"tests/conftest.py", "tests/support/training.py"} <= set(helpers())


@pytest.mark.parametrize("file", [*FILES, *helpers()])
def test_killing_tests_know_nothing_of_faults(file: str) -> None:
    assert "verification" not in (ROOT / file).read_text(encoding="utf-8")
