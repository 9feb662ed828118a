"""The kill matrix measured on toy code, whose killers and survivors are known."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rlverify.kill_matrix import sessions
from rlverify.kill_matrix.plan import MatrixPlan
from rlverify.kill_matrix.run import MatrixResult, measure, result_of
from rlverify.records.errors import MatrixError
from rlverify.records.matrix import FaultPlan, FaultResult
from rlverify.running.executors import ProcessExecutor, ThreadExecutor
from tests.engine.project_folders import project_in

TESTS = """
import pytest
from toyproject.target import Average, clip

def test_restore():
    assert Average.restored({"count": 2, "total": 3.0}).count == 2

@pytest.mark.parametrize("value", [-5, 5])
def test_ends(value):
    assert 0 <= clip(value, 0, 3) <= 3

def test_high():
    assert clip(5, 0, 3) == 3

def test_count():
    average = Average()
    average.add(1.0)
    assert average.count == 1

def test_unrelated():
    pass
"""
FILE = "tests/test_toy.py"
STRICT = "[pytest]\nfilterwarnings = error\n"


@pytest.fixture
def matrix_plan(tmp_path: Path, project_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> MatrixPlan:
    """Toy faults and tests of the toy code, in an environment where they run."""
    for name, text in {FILE: TESTS, "pytest.ini": STRICT}.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.setenv("OMP_NUM_THREADS", project_environment["OMP_NUM_THREADS"])
    for name in [name for name in os.environ if name.startswith(("PYTEST_", "COV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return MatrixPlan(project_in(tmp_path, "toyproject"))


def plan(fault: str, *tests: str, kind: str = "defect") -> FaultPlan:
    asked = tuple(f"{FILE}::{test}" for test in tests)
    return FaultPlan(fault, kind, ("TOY",), "toy", asked if kind == "defect" else (), asked)  # type: ignore[arg-type]


def measured(matrix_plan: MatrixPlan, *plans: FaultPlan) -> MatrixResult:
    return measure(matrix_plan, plans, executor=ThreadExecutor(1), on_progress=lambda *_: None)


def only(found: MatrixResult) -> FaultResult:
    assert found.unmeasured == ()
    (row,) = found.matrix.rows
    return row


def test_a_fault_is_killed_by_the_tests_that_fail_and_by_no_others(matrix_plan: MatrixPlan) -> None:
    found = measured(matrix_plan, plan("clip-one-sided", "test_ends", "test_high", "test_unrelated"))
    row = only(found)
    assert (row.fate, row.reached, row.killers, row.diff) == ("killed", True, (f"{FILE}::test_ends",), "")
    assert row.blind == (f"{FILE}::test_high", f"{FILE}::test_unrelated")
    assert set(found.matrix.tests.values()) == {"passed"}
    assert set(found.matrix.tests) == set(row.plan.tests)


def test_a_survivor_is_shown_beside_the_healthy_member(matrix_plan: MatrixPlan) -> None:
    row = only(measured(matrix_plan, plan("clip-one-sided", "test_high")))
    assert (row.fate, row.killers) == ("survived", ())
    assert row.diff.splitlines()[:2] == ["--- toyproject.target.clip, healthy", "+++ clip-one-sided"]
    assert "-    return min(max(value, low), high)" in row.diff
    assert "+    return min(value, high)" in row.diff
    assert "@fault" not in row.diff


@pytest.mark.parametrize("tests", [("test_unrelated",), ()])
def test_what_no_test_runs_is_unreached(matrix_plan: MatrixPlan, tests: tuple[str, ...]) -> None:
    row = only(measured(matrix_plan, plan("add-twice", *tests)))
    assert (row.fate, row.reached, row.killers) == ("unreached", False, ())


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("def test_bad():\n    assert 1 == 2\n", "failed on healthy code"),
        ("import pytest\n@pytest.mark.skip\ndef test_bad():\n    pass\n", "skipped on healthy code"),
        ("def other():\n    pass\n", "nothing collected on healthy code"),
        ("raise RuntimeError\n", "on healthy code"),
        (
            "import pytest\n@pytest.mark.parametrize('n', [1, 2])\ndef test_bad(n):\n    assert n == 1\n",
            "failed on healthy code",
        ),
    ],
)
def test_a_test_that_does_not_pass_on_healthy_code_disqualifies_itself(
    matrix_plan: MatrixPlan, body: str, words: str
) -> None:
    (matrix_plan.root / "tests/test_bad.py").write_text(body, encoding="utf-8")
    bad = FaultPlan("clip-one-sided", "defect", (), "toy", (), (f"{FILE}::test_ends", "tests/test_bad.py::test_bad"))
    found = measured(matrix_plan, bad)
    assert found.matrix.rows == ()
    (problem,) = found.unmeasured
    assert (problem.subject, problem.exit_code) == ("tests/test_bad.py::test_bad", 2)
    assert words in problem.sentence


def test_a_session_that_breaks_is_no_fate(matrix_plan: MatrixPlan) -> None:
    (matrix_plan.root / "tests/test_half.py").write_text(
        "from troubleproject.target import half\n\ndef test_half():\n    assert half(4) == 2\n", encoding="utf-8"
    )
    tests = ("tests/test_half.py",)
    trouble = MatrixPlan(project_in(matrix_plan.root, "troubleproject"))
    found = measured(trouble, *(FaultPlan(fault, "defect", (), "toy", tests, tests) for fault in ("crashing", "stale")))
    assert found.matrix.rows == ()
    assert [(each.subject, each.exit_code) for each in found.unmeasured] == [("crashing", 2), ("stale", 2)]
    assert "fault stale is stale" in found.unmeasured[1].sentence


def test_sessions_beside_each_other_give_the_same_matrix_and_count_to_the_end(matrix_plan: MatrixPlan) -> None:
    plans = (
        plan("clip-one-sided", "test_ends"),
        plan("add-twice", "test_count"),
        plan("restored-forgets", "test_restore"),
    )
    seen: list[tuple[int, int]] = []
    together = measure(
        matrix_plan, plans, executor=ThreadExecutor(3), on_progress=lambda done, total: seen.append((done, total))
    )
    assert seen == [(done, 4) for done in range(1, 5)]
    assert together == measured(matrix_plan, *plans)
    assert sessions._servers == {}


def exits(_: object) -> None:
    os._exit(5)


def test_a_session_whose_worker_dies_is_one_clear_error() -> None:
    (ended,) = ProcessExecutor(1).map(exits, [None])
    with pytest.raises(MatrixError, match="a session: its worker ended with exit code 5"):
        result_of(ended)
