"""Plants every fault and runs the tests that should notice, in as many sessions at a time as there are cores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import TypeVar

from verification import sessions
from verification.audit import Problem
from verification.exit_codes import HARNESS_FAILED
from verification.kill import Kill, TestRun, run_tests, run_under_faults
from verification.matrix.difference import difference
from verification.matrix.digests import digests_of
from verification.matrix.plan import Bench, Task
from verification.matrix.records import Matrix, Outcome, Plan, Retold, Row, WeakTest, is_of, without_case

Given = TypeVar("Given")
Result = TypeVar("Result")
Progress = Callable[[int, int], None]

AS_THE_ORIGINALS = ("-o", "filterwarnings=", "-W", "ignore::pytest.PytestReturnNotNoneWarning")
"""Weak tests run as the tests of the audited system did, where a warning was no failure."""
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


class Running:
    """Runs sessions beside each other and tells how many of all are done.

    :param count: how many there will be
    """

    def __init__(self, count: int, processes: int, on_progress: Progress) -> None:
        self._done, self._count = 0, count
        self._on_progress = on_progress
        self._pool = ThreadPoolExecutor(processes)

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        sessions.close()

    def each(self, run: Callable[[Given], Result], given: Sequence[Given]) -> list[Result]:
        """What ``run`` gives for each, in their order."""
        futures = [self._pool.submit(run, each) for each in given]
        for _ in as_completed(futures):
            self._done += 1
            self._on_progress(self._done, self._count)
        return [future.result() for future in futures]


def measure(bench: Bench, task: Task, *, processes: int, on_progress: Progress) -> Measurement:
    """Run all tests on healthy code, those of each fault with it planted, and the weak tests with theirs.

    Where a test does not pass on healthy code nothing is planted: it would kill whatever it was run under.
    """
    package = bench.laboratory.package
    with Running(task.sessions, processes, on_progress) as running:
        runs = running.each(lambda tests: run_tests(tests, root=bench.root, package=package), task.columns)
        unfit = [problem for tests, run in zip(task.columns, runs, strict=True) for problem in _unfit(tests, run)]
        if unfit:
            return Measurement(Matrix(digests_of(bench), (), {}, task.suites), tuple(unfit))
        outcomes = {test: found for run in runs for test, found in _outcomes(run).items()}
        rows = running.each(lambda plan: _row(bench, plan), task.plans)
        history = running.each(lambda weak: _retell(bench, weak), task.weak_tests)
    matrix = Matrix(
        digests_of(bench),
        tuple(each for each in rows if isinstance(each, Row)),
        outcomes,
        task.suites,
        tuple(each for each in history if isinstance(each, Retold)),
    )
    return Measurement(matrix, tuple(each for each in (*rows, *history) if isinstance(each, Problem)))


def _unfit(tests: Iterable[str], run: TestRun) -> list[Problem]:
    """Those of the tests that did not pass on healthy code, in every case of theirs."""
    cases = _cases(run)
    problems = []
    for asked in tests:
        found: set[Outcome] = {outcome for test, outcome in cases if is_of(test, asked)} or {"nothing collected"}
        if found != {"passed"}:
            words = ", ".join(sorted(found - {"passed"}))
            problems.append(_failed(asked, f"{words} on healthy code, so that it can prove nothing", run.output))
    return problems


def _outcomes(run: TestRun) -> dict[str, Outcome]:
    """The outcome of every test, the worst of its cases."""
    return {without_case(test): outcome for test, outcome in _cases(run)}


def _cases(run: TestRun) -> list[tuple[str, Outcome]]:
    """Every case of every test with its outcome, the worst last."""
    found = run.outcome
    if found is None:
        return []
    words: list[tuple[Outcome, list[str]]] = [
        ("passed", found.passed),
        ("skipped", found.skipped),
        ("failed", [*found.failed, *found.errors, *found.mistakes]),
    ]
    return [(test, outcome) for outcome, tests in words for test in tests]


def _failed(subject: str, what: str, output: str) -> Problem:
    said = [line for line in output.splitlines() if line.strip()][-SHOWN_LINES:]
    return Problem(subject, HARNESS_FAILED, "\n  ".join([what, *said]))


def _row(bench: Bench, plan: Plan) -> Row | Problem:
    if not plan.tests:
        return Row(plan, "unreached", reached=False)
    kill: Kill = run_under_faults([plan.fault], plan.tests, root=bench.root, package=bench.laboratory.package)
    if kill.fate == "error":
        return _failed(plan.fault, "its session did not come to its end", kill.output)
    if kill.fate == "unreached":
        return Row(plan, "unreached", reached=False)
    killers = tuple(sorted({without_case(test) for test in kill.failed}))
    shown = kill.fate == "survived" and plan.kind != "null"
    return Row(plan, kill.fate, True, killers, difference(bench.laboratory.fault(plan.fault)) if shown else "")


def _retell(bench: Bench, weak: WeakTest) -> Retold | Problem:
    """The weak test on healthy code and under its fault; that it fails there is as good as any other answer."""

    def run(*planted: str) -> TestRun:
        arguments = [*planted, *AS_THE_ORIGINALS, weak.test]
        return run_tests(arguments, root=bench.root, package=bench.laboratory.package)

    healthy, faulty = run(), run("--plant", weak.fault)
    before, after = _outcome_of(healthy), _outcome_of(faulty)
    if before is None or before == "failed":
        return _failed(weak.test, "this weak test fails on healthy code, so that it can prove nothing", healthy.output)
    if after is None or faulty.outcome is None:
        return _failed(weak.test, "its session did not come to its end", faulty.output)
    return Retold(weak, before, after, reached=sum(faulty.outcome.executions.values()) > 0)


def _outcome_of(run: TestRun) -> Outcome | None:
    """The worst of all outcomes of a session; None if it broke."""
    found = run.outcome
    if found is None or found.mistakes:
        return None
    if found.failed or found.errors:
        return "failed"
    if run.exit_code == COLLECTED_NOTHING:
        return "nothing collected"
    return "passed" if found.passed else "skipped"
