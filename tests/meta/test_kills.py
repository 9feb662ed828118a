"""Every fault that is expected to be noticed is noticed by tests that know nothing of it, and its null fault is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from verification.kill import run_under_fault
from verification.laboratory import Laboratory
from verification.model import FixGrade, Verdict

ROOT = Path(__file__).parents[2]


def expected_kills() -> list[tuple[str, tuple[str, ...]]]:
    """The faults of claims expected CONFIRMED, and documented fixes that are expected to leave something broken."""
    kills = []
    for claim in Laboratory().claims:
        if claim.expected_verdict is Verdict.CONFIRMED and claim.fault is not None:
            kills.append((claim.fault, claim.killed_by))
            if claim.documented_fix is not None and claim.expected_fix_grade is not FixGrade.CURED:
                kills.append((claim.documented_fix, claim.killed_by))
    return kills


KILLS = expected_kills()
NAMES = [fault for fault, _ in KILLS]


def test_every_confirmed_claim_names_tests_that_kill_its_fault() -> None:
    assert {"bug-01-padding-kept-in-predictions", "bug-10-relink-wipes-statistics"} <= set(NAMES)
    assert all(tests for _, tests in KILLS)


@pytest.mark.parametrize(("fault", "tests"), KILLS, ids=NAMES)
def test_the_suite_kills_the_fault(fault: str, tests: tuple[str, ...]) -> None:
    kill = run_under_fault(fault, ["-x", *tests], root=ROOT)
    assert kill.fate == "killed", kill.output
    assert kill.executions > 0


@pytest.mark.parametrize(("fault", "tests"), KILLS, ids=NAMES)
def test_the_null_fault_of_the_same_member_survives(fault: str, tests: tuple[str, ...]) -> None:
    kill = run_under_fault(fault, tests, root=ROOT, null=True)
    assert kill.fate == "survived", kill.output


@pytest.mark.parametrize("test", sorted({test for _, tests in KILLS for test in tests}))
def test_killing_tests_know_nothing_of_faults(test: str) -> None:
    source = (ROOT / test.partition("::")[0]).read_text()
    assert "verification" not in source
