"""Plants every fault, runs the tests that should detect it, and replaces what is committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from typing import Any, TypeVar

from rlverify.evidence.files import check_writable, prepare_working_folder, write_files
from rlverify.gating.committed_evidence import Committed
from rlverify.gating.git_base import Base
from rlverify.kill_matrix import sessions
from rlverify.kill_matrix.committed import MATRIX, REPORT, matrix_json, problems_of, render_page
from rlverify.kill_matrix.plan import MatrixPlan, changed_plans, difference
from rlverify.kill_matrix.sessions import TestRun, run_tests, run_under_faults
from rlverify.project.settings import ReportPaths
from rlverify.records.errors import MatrixError
from rlverify.records.matrix import FaultPlan, FaultResult, Matrix, NamedSuite, TestOutcome, is_of, without_case
from rlverify.records.problems import HARNESS_FAILED, Problem, exit_code_of, outcome_of
from rlverify.running.executors import Ended, Executor, Progress

Given = TypeVar("Given")
Result = TypeVar("Result")

SHOWN_LINES = 5


@dataclass(frozen=True)
class MatrixResult:
    """What was measured, and all that is wrong with it.

    :param matrix: without what could not be measured
    :param unmeasured: tests that do not pass on healthy code, and sessions that did not come to their end
    :param differences: of each fault that was asked for by its name, against the healthy member
    """

    matrix: Matrix
    unmeasured: tuple[Problem, ...]
    differences: Mapping[str, str] = field(default_factory=dict)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All problems: what could not be measured, and each fault that met another fate than it should."""
        return (*self.unmeasured, *problems_of(self.matrix))

    @property
    def exit_code(self) -> int:
        """0 as expected, 1 a fault met another fate than it should, 2 something could not be measured."""
        return exit_code_of(self.problems)

    def as_object(self) -> dict[str, Any]:
        """For JSON."""
        return {"matrix": asdict(self.matrix), "differences": dict(self.differences), **outcome_of(self.problems)}


def measure(
    matrix_plan: MatrixPlan,
    plans: Sequence[FaultPlan],
    suites: tuple[NamedSuite, ...] = (),
    *,
    executor: Executor,
    on_progress: Progress,
) -> MatrixResult:
    """Run all tests on healthy code, and those of each fault with it planted.

    If a test does not pass on healthy code, no fault is planted: the test would seem to detect every fault.

    :param suites: tests that are to pass on healthy code, whether or not they run under a fault
    """
    columns: dict[str, list[str]] = {}
    asked = [each.tests for each in plans] + [each.tests for each in suites]
    for test in sorted({test for tests in asked for test in tests}):
        columns.setdefault(test.partition("::")[0], []).append(test)
    if not (matrix_plan.has_tests or any((matrix_plan.root / file).is_file() for file in columns)):
        raise MatrixError(matrix_plan.root, 'no claim names a test that is there; add killed_by = ["tests/..."] to one')
    if find_spec("pytest") is None:
        raise MatrixError("pytest", "cannot be imported, which runs the tests: pip install pytest")
    done, root, today = 0, matrix_plan.root, datetime.now(UTC).date().isoformat()

    def each(run: Callable[[Given], Result], given: Sequence[Given]) -> list[Result]:
        def note(*_: object) -> None:
            nonlocal done
            done += 1
            on_progress(done, len(columns) + len(plans))

        return [result_of(ended) for ended in executor.map(run, given, note=note)]

    try:
        runs = each(partial(run_tests, root=root), [*columns.values()])
        unfit = [problem for tests, run in zip(columns.values(), runs, strict=True) for problem in _unfit(tests, run)]
        if unfit:
            return MatrixResult(Matrix(today, (), {}, suites), tuple(unfit))
        outcomes = {without_case(test): found for run in runs for test, found in _cases(run)}
        rows = each(partial(_row, matrix_plan), plans)
    finally:
        sessions.close()
    matrix = Matrix(today, tuple(each for each in rows if isinstance(each, FaultResult)), outcomes, suites)
    return MatrixResult(matrix, tuple(each for each in rows if isinstance(each, Problem)))


def result_of(ended: Ended[Result]) -> Result:
    """Return the result of a task."""
    if ended.result is None:
        raise MatrixError("a session", ended.reason or f"its worker ended with exit code {ended.exit_code}")
    return ended.result


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
    return Problem(subject, HARNESS_FAILED, "\n  ".join([what, *said[-SHOWN_LINES:]]))


def _row(matrix_plan: MatrixPlan, plan: FaultPlan) -> FaultResult | Problem:
    if not plan.tests:
        return FaultResult(plan, "unreached", reached=False)
    run = run_under_faults([plan.fault], plan.tests, root=matrix_plan.root)
    fate = run.fate
    if fate == "error":
        return _failed(plan.fault, "its session did not come to its end", run.output)
    if fate == "unreached":
        return FaultResult(plan, "unreached", reached=False)
    killers = tuple(sorted({without_case(test) for test in run.failed}))
    shown = fate == "survived" and plan.kind != "null"
    diff = difference(matrix_plan.project.fault(plan.fault)) if shown else ""
    return FaultResult(plan, fate, True, killers, diff)


def run_matrix(
    matrix_plan: MatrixPlan, paths: ReportPaths, *, update: bool, executor: Executor, on_progress: Progress
) -> MatrixResult:
    """Measure the whole matrix; replace the committed one and render the pages if asked to."""
    prepare_working_folder(paths.working)
    if update:
        check_writable(paths.reports)
    plans, suites = matrix_plan.plans, matrix_plan.suites
    found = measure(matrix_plan, plans, suites, executor=executor, on_progress=on_progress)
    if found.unmeasured:
        return found
    files = {MATRIX: matrix_json(found.matrix), REPORT: render_page(matrix_plan.project, found.matrix)}
    if update:
        write_files(paths.reports, files)
        # The other pages show which tests passed.
        Committed(matrix_plan.project, paths).write_report()
    return found


def run_fault(matrix_plan: MatrixPlan, name: str, *, executor: Executor, on_progress: Progress) -> MatrixResult:
    """Measure one fault, in each of its roles; nothing is written."""
    asked = matrix_plan.project.fault(name)
    plans = tuple(plan for plan in matrix_plan.plans if plan.fault == name)
    if not plans:
        raise MatrixError(name, "no claim and no named test expects anything of it, so that nothing can be run")
    found = measure(matrix_plan, plans, executor=executor, on_progress=on_progress)
    return replace(found, differences={name: difference(asked)})


def run_changed(
    matrix_plan: MatrixPlan, base: Base, chosen: frozenset[str] | None, *, executor: Executor, on_progress: Progress
) -> tuple[int, tuple[Problem, ...]]:
    """Plant the faults again that a change since the base can let through: their code, target or tests differ.

    :return: how many they are, and all that is wrong
    """
    plans = [plan for plan in changed_plans(matrix_plan, base) if chosen is None or chosen & set(plan.claims)]
    if not plans or not matrix_plan.has_tests:
        return 0, ()
    again = [replace(plan, tests=plan.checks or plan.tests) for plan in plans]
    found = measure(matrix_plan, again, executor=executor, on_progress=on_progress)
    return len(plans), found.problems
