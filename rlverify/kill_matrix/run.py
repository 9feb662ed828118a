"""Plants every fault, runs the tests that should detect it, and replaces what is committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from rlverify.evidence.evidence_files import load_folder
from rlverify.evidence.files import check_writable, prepare_working_folder, write_files
from rlverify.gating.committed_evidence import committed_records, write_report
from rlverify.gating.git_base import Base
from rlverify.kill_matrix import sessions
from rlverify.kill_matrix.committed import MATRIX, REPORT, matrix_json, problems_of, render_page
from rlverify.kill_matrix.plan import MatrixPlan, MatrixTask, changed_plans, difference
from rlverify.kill_matrix.sessions import Kill, TestRun, run_tests, run_under_faults
from rlverify.project.settings import ReportPaths
from rlverify.records.errors import MatrixError
from rlverify.records.matrix import (
    FaultPlan,
    FaultResult,
    Matrix,
    TestOutcome,
    WeakTest,
    WeakTestResult,
    is_of,
    without_case,
)
from rlverify.records.problems import HARNESS_FAILED, Problem, exit_code_of, outcome_of
from rlverify.running.executors import Ended, Executor
from rlverify.running.runner import Progress

Given = TypeVar("Given")
Result = TypeVar("Result")

AS_THE_ORIGINALS = ("-o", "filterwarnings=", "-W", "ignore::pytest.PytestReturnNotNoneWarning")
"""Weak tests run where a warning is no failure, as those that they are modelled on did."""
COLLECTED_NOTHING = 5
SHOWN_LINES = 5


@dataclass(frozen=True)
class Measurement:
    """What was measured, and what could not be.

    :param matrix: without what could not be measured
    :param problems: tests that do not pass on healthy code, and sessions that did not come to their end
    """

    matrix: Matrix
    problems: tuple[Problem, ...]


def measure(matrix_plan: MatrixPlan, task: MatrixTask, *, executor: Executor, on_progress: Progress) -> Measurement:
    """Run all tests on healthy code, those of each fault with it planted, and the weak tests with theirs.

    If a test does not pass on healthy code, no fault is planted: the test would seem to detect every fault.
    """
    done, root, today = 0, matrix_plan.root, datetime.now(UTC).date().isoformat()

    def each(run: Callable[[Given], Result], given: Sequence[Given]) -> list[Result]:
        def note(*_: object) -> None:
            nonlocal done
            done += 1
            on_progress(done, task.sessions)

        return [result_of(ended) for ended in executor.map(run, given, note=note)]

    try:
        runs = each(partial(_run_on_healthy_code, root), task.columns)
        unfit = [problem for tests, run in zip(task.columns, runs, strict=True) for problem in _unfit(tests, run)]
        if unfit:
            return Measurement(Matrix(today, (), {}, task.suites), tuple(unfit))
        outcomes = {test: found for run in runs for test, found in _outcomes(run).items()}
        rows = each(partial(_row, matrix_plan), task.plans)
        history = each(partial(_run_weak_test, matrix_plan), task.weak_tests)
    finally:
        sessions.close()
    matrix = Matrix(
        today,
        tuple(each for each in rows if isinstance(each, FaultResult)),
        outcomes,
        task.suites,
        tuple(each for each in history if isinstance(each, WeakTestResult)),
    )
    return Measurement(matrix, tuple(each for each in (*rows, *history) if isinstance(each, Problem)))


def result_of(ended: Ended[Result]) -> Result:
    """The result of a task.

    :raises MatrixError: if there is none, as the worker that waited for a session was lost
    """
    if ended.result is None:
        raise MatrixError("a session", ended.reason or f"its worker ended with exit code {ended.exit_code}")
    return ended.result


def _run_on_healthy_code(root: Path, tests: Sequence[str]) -> TestRun:
    return run_tests(tests, root=root)


def _unfit(tests: Iterable[str], run: TestRun) -> list[Problem]:
    """Those of the tests that did not pass on healthy code, in every case of theirs."""
    cases = _cases(run)
    problems = []
    for asked in tests:
        found: set[TestOutcome] = {outcome for test, outcome in cases if is_of(test, asked)} or {"nothing collected"}
        if found != {"passed"}:
            words = ", ".join(sorted(found - {"passed"}))
            problems.append(_failed(asked, f"{words} on healthy code, so that it can prove nothing", run.output))
    return problems


def _outcomes(run: TestRun) -> dict[str, TestOutcome]:
    """The outcome of every test, the worst of its cases."""
    return {without_case(test): outcome for test, outcome in _cases(run)}


def _cases(run: TestRun) -> list[tuple[str, TestOutcome]]:
    """Every case of every test with its outcome, the worst last."""
    found = run.outcome
    if found is None:
        return []
    words: list[tuple[TestOutcome, list[str]]] = [
        ("passed", found.passed),
        ("skipped", found.skipped),
        ("failed", [*found.failed, *found.errors, *found.mistakes]),
    ]
    return [(test, outcome) for outcome, tests in words for test in tests]


def _failed(subject: str, what: str, output: str) -> Problem:
    said = [line for line in output.splitlines() if line.strip()]
    no_server = [line for line in said[:-SHOWN_LINES] if line.startswith(sessions.NO_SERVER)]
    return Problem(subject, HARNESS_FAILED, "\n  ".join([what, *no_server, *said[-SHOWN_LINES:]]))


def _row(matrix_plan: MatrixPlan, plan: FaultPlan) -> FaultResult | Problem:
    if not plan.tests:
        return FaultResult(plan, "unreached", reached=False)
    kill: Kill = run_under_faults([plan.fault], plan.tests, root=matrix_plan.root)
    if kill.fate == "error":
        return _failed(plan.fault, "its session did not come to its end", kill.output)
    if kill.fate == "unreached":
        return FaultResult(plan, "unreached", reached=False)
    killers = tuple(sorted({without_case(test) for test in kill.failed}))
    shown = kill.fate == "survived" and plan.kind != "null"
    diff = difference(matrix_plan.project.fault(plan.fault)) if shown else ""
    return FaultResult(plan, kill.fate, True, killers, diff)


def _run_weak_test(matrix_plan: MatrixPlan, weak: WeakTest) -> WeakTestResult | Problem:
    """Run the weak test on healthy code and under its fault; a failure under the fault is a valid result."""

    def run(*planted: str) -> TestRun:
        arguments = [*planted, *AS_THE_ORIGINALS, weak.test]
        return run_tests(arguments, root=matrix_plan.root)

    healthy, faulty = run(), run("--plant", weak.fault)
    before, after = _outcome_of(healthy), _outcome_of(faulty)
    if before is None or before == "failed":
        return _failed(weak.test, "this weak test fails on healthy code, so that it can prove nothing", healthy.output)
    if after is None or faulty.outcome is None:
        return _failed(weak.test, "its session did not come to its end", faulty.output)
    reached = sum(faulty.outcome.executions.values()) > 0
    return WeakTestResult(weak, before, after, reached)


def _outcome_of(run: TestRun) -> TestOutcome | None:
    """The worst of all outcomes of a session; None if it broke."""
    found = run.outcome
    if found is None or found.mistakes:
        return None
    if found.failed or found.errors:
        return "failed"
    if run.exit_code == COLLECTED_NOTHING:
        return "nothing collected"
    return "passed" if found.passed else "skipped"


@dataclass(frozen=True)
class MatrixResult:
    """What was measured and all that is wrong with it.

    :param differences: of each fault that was asked for by its name, against the healthy member
    """

    matrix: Matrix
    problems: tuple[Problem, ...]
    differences: Mapping[str, str] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """0 as expected, 1 a fault met another fate than it should, 2 something could not be measured."""
        return exit_code_of(self.problems)

    def as_object(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "matrix": asdict(self.matrix),
            "differences": dict(self.differences),
            **outcome_of(self.problems),
        }


def run_matrix(
    matrix_plan: MatrixPlan, paths: ReportPaths, *, update: bool, executor: Executor, on_progress: Progress
) -> MatrixResult:
    """Measure the whole matrix; replace the committed one and render the pages if asked to.

    Where something could not be measured, nothing is written. Else the matrix is left in the working folder.

    :raises MatrixError: if there are no tests, or no pytest that could run them
    :raises EvidenceError: if a folder cannot be written; nothing has been changed then
    """
    task = MatrixTask(matrix_plan.plans, matrix_plan.suites, matrix_plan.weak_tests)
    prepare_working_folder(paths.working)
    if update:
        check_writable(paths.reports)
    found = _measure(matrix_plan, task, executor=executor, on_progress=on_progress)
    problems = [*found.problems, *problems_of(found.matrix)]
    if found.problems:
        return MatrixResult(found.matrix, tuple(problems))
    files = {MATRIX: matrix_json(found.matrix), REPORT: render_page(matrix_plan.project, found.matrix)}
    write_files(paths.working, files)
    if update:
        write_files(paths.reports, files)
        # The other pages show which tests passed.
        write_report(matrix_plan.project, paths, committed_records(matrix_plan.project, load_folder(paths.evidence)))
    return MatrixResult(found.matrix, tuple(problems))


def run_fault(matrix_plan: MatrixPlan, name: str, *, executor: Executor, on_progress: Progress) -> MatrixResult:
    """Measure one fault, in each of its roles; nothing is written.

    :raises UnknownNameError: if there is no such fault
    :raises MatrixError: if no claim asks for it, there are no tests, or pytest is missing
    """
    asked = matrix_plan.project.fault(name)
    plans = tuple(plan for plan in matrix_plan.plans if plan.fault == name)
    if not plans:
        raise MatrixError(name, "no claim and no named test expects anything of it, so that nothing can be run")
    found = _measure(matrix_plan, MatrixTask(plans), executor=executor, on_progress=on_progress)
    return MatrixResult(found.matrix, (*found.problems, *problems_of(found.matrix)), {name: difference(asked)})


def run_changed(
    matrix_plan: MatrixPlan,
    base: Base,
    chosen: frozenset[str] | None,
    *,
    executor: Executor,
    on_progress: Progress,
) -> tuple[int, tuple[Problem, ...]]:
    """Plant the faults again that a change since the base can let through: their code, target or tests differ.

    :param chosen: the ids of the claims whose faults count; None for all
    :return: how many they are, and all that is wrong
    :raises MatrixError: if pytest is missing
    """
    plans = [plan for plan in changed_plans(matrix_plan, base) if chosen is None or chosen & set(plan.claims)]
    if not plans or not matrix_plan.has_tests:
        return 0, ()
    task = MatrixTask(tuple(replace(plan, tests=plan.checks or plan.tests) for plan in plans))
    found = _measure(matrix_plan, task, executor=executor, on_progress=on_progress)
    return len(plans), (*found.problems, *problems_of(found.matrix))


def _measure(matrix_plan: MatrixPlan, task: MatrixTask, *, executor: Executor, on_progress: Progress) -> Measurement:
    """Measure, where there are tests and a pytest that runs them."""
    if not matrix_plan.has_tests:
        raise MatrixError(matrix_plan.root, 'no claim names a test that is there; add killed_by = ["tests/..."] to one')
    if find_spec("pytest") is None:
        raise MatrixError("pytest", "cannot be imported, which runs the tests: pip install pytest")
    return measure(matrix_plan, task, executor=executor, on_progress=on_progress)
