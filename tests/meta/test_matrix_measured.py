"""The kill matrix measured on toy code, whose killers and survivors are known."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rlverify.kill_matrix import sessions
from rlverify.kill_matrix.plan import MatrixPlan, MatrixTask
from rlverify.kill_matrix.run import Measurement, measure, result_of
from rlverify.project.content import open_project
from rlverify.records.errors import MatrixError
from rlverify.records.matrix import FaultPlan, FaultResult, WeakTest, WeakTestResult
from rlverify.running.executors import Executor, InlineExecutor, ProcessExecutor, ThreadExecutor
from tests.meta.project_folders import project_in

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
WEAK = """
import pytest
from toyproject.target import clip

def test_other_end():
    assert clip(5, 0, 3) == 3

def test_notices():
    assert clip(-5, 0, 3) == 0

def test_returns() -> bool:
    return clip(-5, 0, 3) == 0

def test_elsewhere():
    assert True

@pytest.mark.skip(reason="later")
def test_later():
    assert clip(-5, 0, 3) == 0

def test_wrong():
    assert clip(-5, 0, 3) == 1
"""
ROOT = Path(__file__).parents[2]
FILE = "tests/test_toy.py"
STRICT = "[pytest]\nfilterwarnings = error\n"

Measure = Callable[..., Measurement]


@pytest.fixture
def matrix_plan(tmp_path: Path, project_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> MatrixPlan:
    """Toy faults and tests of the toy code, in an environment where they run."""
    for name, text in {FILE: TESTS, "weak.py": WEAK, "script.py": "x = 1\n", "pytest.ini": STRICT}.items():
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


def measured(
    matrix_plan: MatrixPlan, *plans: FaultPlan, weak: tuple[WeakTest, ...] = (), processes: int = 1
) -> Measurement:
    return measure(
        matrix_plan, MatrixTask(plans, (), weak), executor=ThreadExecutor(processes), on_progress=lambda *_: None
    )


def only(found: Measurement) -> FaultResult:
    assert found.problems == ()
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


def test_a_null_fault_survives_without_a_word(matrix_plan: MatrixPlan) -> None:
    row = only(measured(matrix_plan, plan("null-add-twice", "test_count", kind="null")))
    assert (row.fate, row.reached, row.diff) == ("survived", True, "")


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
    (problem,) = found.problems
    assert (problem.subject, problem.exit_code) == ("tests/test_bad.py::test_bad", 2)
    assert words in problem.sentence


def test_a_case_can_be_asked_for_alone(matrix_plan: MatrixPlan) -> None:
    (matrix_plan.root / "tests/test_cases.py").write_text(
        "import pytest\nfrom toyproject.target import clip\n"
        "@pytest.mark.parametrize('value', [-5, 5])\ndef test_case(value):\n    assert 0 <= clip(value, 0, 3) <= 3\n",
        encoding="utf-8",
    )
    one = "tests/test_cases.py::test_case[-5]"
    row = only(measured(matrix_plan, FaultPlan("clip-one-sided", "defect", (), "toy", (one,), (one,))))
    assert (row.killers, row.blind) == (("tests/test_cases.py::test_case",), ())


def test_a_session_that_breaks_is_no_fate(matrix_plan: MatrixPlan) -> None:
    (matrix_plan.root / "tests/test_half.py").write_text(
        "from troubleproject.target import half\n\ndef test_half():\n    assert half(4) == 2\n", encoding="utf-8"
    )
    tests = ("tests/test_half.py",)
    trouble = MatrixPlan(project_in(matrix_plan.root, "troubleproject"))
    found = measured(trouble, *(FaultPlan(fault, "defect", (), "toy", tests, tests) for fault in ("crashing", "stale")))
    assert found.matrix.rows == ()
    assert [(each.subject, each.exit_code) for each in found.problems] == [("crashing", 2), ("stale", 2)]
    assert "fault stale is stale" in found.problems[1].sentence


def weak(test: str, fault: str = "clip-one-sided") -> WeakTest:
    return WeakTest(test, fault, "told", "blind")


def test_weak_tests_miss_their_fault_each_in_its_own_way(matrix_plan: MatrixPlan) -> None:
    tests = ["weak.py::test_other_end", "weak.py::test_returns", "weak.py::test_elsewhere", "weak.py::test_later"]
    tests += ["script.py", "weak.py::test_notices"]
    found = measured(matrix_plan, weak=tuple(map(weak, tests)))
    assert found.problems == ()
    assert [(each.weak.test, each.faulty, each.reached) for each in found.matrix.history] == [
        ("weak.py::test_other_end", "passed", True),
        ("weak.py::test_returns", "passed", True),
        ("weak.py::test_elsewhere", "passed", False),
        ("weak.py::test_later", "skipped", False),
        ("script.py", "nothing collected", False),
        ("weak.py::test_notices", "failed", True),
    ]
    assert [each.missed for each in found.matrix.history] == [True] * 5 + [False]
    assert [each.healthy for each in found.matrix.history[-2:]] == ["nothing collected", "passed"]


@pytest.mark.parametrize(("test", "fault"), [("weak.py::test_wrong", "clip-one-sided"), ("weak.py", "no-such-fault")])
def test_a_weak_test_that_fails_on_healthy_code_or_cannot_run_tells_nothing(
    matrix_plan: MatrixPlan, test: str, fault: str
) -> None:
    found = measured(matrix_plan, weak=(weak(test, fault),))
    assert found.matrix.history == ()
    assert [(each.subject, each.exit_code) for each in found.problems] == [(test, 2)]


def test_sessions_beside_each_other_give_the_same_matrix_and_count_to_the_end(matrix_plan: MatrixPlan) -> None:
    plans = (
        plan("clip-one-sided", "test_ends"),
        plan("add-twice", "test_count"),
        plan("restored-forgets", "test_restore"),
    )
    task = MatrixTask(plans, (), (weak("weak.py::test_notices"),))
    seen: list[tuple[int, int]] = []
    together = measure(
        matrix_plan, task, executor=ThreadExecutor(3), on_progress=lambda done, total: seen.append((done, total))
    )
    assert seen == [(done, 5) for done in range(1, 6)]
    assert together == measured(matrix_plan, *plans, weak=task.weak_tests)
    assert isinstance(together.matrix.history[0], WeakTestResult)
    assert sessions._servers == {}


def test_the_weak_tests_are_found_beside_the_faults_and_by_no_run_of_the_suite() -> None:
    real = MatrixPlan(open_project(ROOT))
    assert {each.fault for each in real.weak_tests} <= set(real.project.faults)
    paths = {real.root / each.test.partition("::")[0] for each in real.weak_tests}
    folder = ROOT / "verification" / "weak_tests"
    assert paths == {path for path in folder.glob("*.py") if path.name != "__init__.py"}
    assert not [path for path in paths if path.name.startswith("test_") or path.name.endswith("_test.py")]


@pytest.mark.parametrize("executor", [InlineExecutor(), ProcessExecutor(2)])
def test_the_matrix_is_the_same_wherever_its_sessions_are_waited_for(
    executor: Executor, matrix_plan: MatrixPlan
) -> None:
    plans = (plan("clip-one-sided", "test_ends", "test_high"), plan("add-twice", "test_unrelated"))
    task = MatrixTask(plans, (), (weak("weak.py::test_notices"),))
    found = measure(matrix_plan, task, executor=executor, on_progress=lambda *_: None)
    assert found == measured(matrix_plan, *plans, weak=task.weak_tests)


def exits(_: object) -> None:
    os._exit(5)


def test_a_session_whose_worker_dies_is_one_clear_error() -> None:
    (ended,) = ProcessExecutor(1).map(exits, [None])
    with pytest.raises(MatrixError, match="a session: its worker ended with exit code 5"):
        result_of(ended)
