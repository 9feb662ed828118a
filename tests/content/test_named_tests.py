"""Every test that the documents name exists under its name, fails under the faults it is there for, and only then."""

from __future__ import annotations

import ast
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rlverify.kill_matrix.committed import MUST_BE_DETECTED_BY_ALL
from rlverify.kill_matrix.plan import NAMED_TESTS, MatrixPlan
from rlverify.kill_matrix.sessions import run_under_faults
from rlverify.project.content import open_project

ROOT = Path(__file__).parents[2]
PROJECT = open_project(ROOT)
PLANS = MatrixPlan(PROJECT).plans
COUNTS = {
    "test_upgd_pbt_twin_critics_variance_integration.py": 24,
    "test_integration_edge_cases.py": 12,
    "test_pbt_scheduler.py": 45,
    "test_vgs_pbt_state_mismatch.py": 3,
    "test_vgs_pbt_fix_validation.py": 3,
    "test_ppo_audit_plan.py": 3,
}
CITED = {
    "TestUPGDWithPBT::test_pbt_exploit_and_explore_with_upgd",
    "TestUPGDWithPBT::test_pbt_population_divergence_prevention",
    "TestFullIntegrationSaveLoad::test_vgs_state_preserved_across_save_load",
    "TestPBTScheduler::test_exploit_and_explore_not_ready",
    "TestPBTScheduler::test_exploit_and_explore_ready",
    "test_return_scale_snapshot_timing",
    "test_vecnormalize_lstm_sync_after_pbt",
    "test_vgs_variance_semantics",
}
"""Names that the documents give in full."""


@dataclass(frozen=True)
class Suite:
    """A file of named tests.

    :param document: the number of the document that names it
    :param tests: by name, the faults under each of which the test must fail
    :param count: how many the document counts, where it does
    :param guards: tests of the file's own premises, which no fault could reach
    """

    document: str
    file: str
    tests: dict[str, list[str]]
    count: int | None = None
    guards: list[str] = field(default_factory=list)

    def ids(self, fault: str | None = None) -> list[str]:
        """The tests that the fault must kill; all of them without one."""
        return [f"{self.file}::{name}" for name, faults in self.tests.items() if fault is None or fault in faults]


SUITES = [Suite(**each) for each in tomllib.loads((PROJECT.folder / NAMED_TESTS).read_text("utf-8"))["suite"]]
FIXES = {"bug-02-fix-lost-in-first-train", "bug-08-fix-saves-defaults"}
"""Faults of which the matrix asks only that one of the tests detects them."""
FAULTS = sorted({fault for suite in SUITES for faults in suite.tests.values() for fault in faults})


def functions_in(path: Path) -> list[str]:
    """The test functions of a file, those of a class behind its name."""
    found = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        functions = [each.name for each in inside if isinstance(each, ast.FunctionDef)]
        found += [f"{prefix}{name}" for name in functions if name.startswith("test_")]
    return found


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: Path(suite.file).stem)
def test_the_file_has_the_named_tests_and_no_others(suite: Suite) -> None:
    assert sorted(functions_in(ROOT / suite.file)) == sorted([*suite.tests, *suite.guards])
    assert suite.count in (None, len(suite.tests))
    text = (ROOT / suite.file).read_text(encoding="utf-8")
    assert not any(word in text for word in ("verification", "rlverify")), "a named test must know of no fault"
    assert all(suite.tests.values()), "a test that no fault kills has not been seen to fail"


def test_the_counts_are_those_of_the_documents() -> None:
    found = {Path(suite.file).name: len(suite.tests) for suite in SUITES}
    assert {name: found.get(name) for name in COUNTS} == COUNTS
    assert {name for suite in SUITES for name in suite.tests} >= CITED


def test_every_fault_that_no_claim_names_is_named_here() -> None:
    assert {name for name, fault in PROJECT.faults.items() if not fault.claimed} <= set(FAULTS)


@pytest.mark.parametrize("fault", sorted({*FAULTS} - FIXES))
def test_the_matrix_asks_the_named_tests_to_fail_under_their_fault(fault: str) -> None:
    plans = [plan for plan in PLANS if plan.fault == fault and plan.kind in MUST_BE_DETECTED_BY_ALL]
    asked = {test for plan in plans for test in plan.checks}
    assert asked >= {test for suite in SUITES for test in suite.ids(fault)}


@pytest.mark.slow
@pytest.mark.parametrize("fault", sorted(FIXES))
def test_the_named_tests_fail_under_a_fix_that_does_not_cure(fault: str) -> None:
    named = [test for suite in SUITES for test in suite.ids(fault)]
    kill = run_under_faults([fault], named, root=ROOT)
    assert kill.fate == "killed", kill.output
    failed = {test.partition("[")[0] for test in kill.failed}
    assert set(named) <= failed, f"survived: {sorted(set(named) - failed)}\n{kill.output}"


@pytest.mark.slow
@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: Path(suite.file).stem)
def test_the_named_tests_survive_the_null_faults_of_the_same_members(suite: Suite) -> None:
    faults = [PROJECT.fault(name) for names in suite.tests.values() for name in names]
    of_member = {(fault.owner, fault.member): fault.name for fault in faults}
    kill = run_under_faults([*of_member.values()], suite.ids(), root=ROOT, null=True)
    assert kill.fate == "survived", kill.output
