"""Plants every fault and runs the tests that should detect it, in as many sessions at a time as there are cores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from rlverify.kill_matrix import sessions
from rlverify.kill_matrix.fault_diff import difference
from rlverify.kill_matrix.plan import MatrixPlan, MatrixTask
from rlverify.kill_matrix.planted_tests import Kill, TestRun, run_tests, run_under_faults
from rlverify.records.errors import MatrixError
from rlverify.records.exit_codes import HARNESS_FAILED
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
from rlverify.records.problems import Problem
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
