"""``rlverify matrix``: measures, and replaces what is committed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from rlverify.evidence.evidence_files import load_folder
from rlverify.evidence.files import check_writable, prepare_working_folder, write_files
from rlverify.gating.committed_evidence import committed_records, write_report
from rlverify.gating.git_base import Base
from rlverify.kill_matrix.changed import changed_plans
from rlverify.kill_matrix.committed import MATRIX, REPORT, problems_of, render_page
from rlverify.kill_matrix.fault_diff import difference
from rlverify.kill_matrix.matrix_file import to_json
from rlverify.kill_matrix.plan import MatrixPlan, MatrixTask
from rlverify.project.settings import ReportPaths
from rlverify.records.errors import MatrixError
from rlverify.records.matrix import Matrix
from rlverify.records.problems import Problem, exit_code_of, outcome_of
from rlverify.running.executors import Executor
from rlverify.running.runner import Progress

if TYPE_CHECKING:
    from rlverify.kill_matrix.measure import Measurement


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
    files = {MATRIX: to_json(found.matrix), REPORT: render_page(matrix_plan.project, found.matrix)}
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
    """Measure. What runs the tests is imported only here, because nothing else needs pytest."""
    if not matrix_plan.has_tests:
        raise MatrixError(matrix_plan.root, 'no claim names a test that is there; add killed_by = ["tests/..."] to one')
    if find_spec("pytest") is None:
        raise MatrixError("pytest", "cannot be imported, which runs the tests: pip install pytest")
    from rlverify.kill_matrix.measure import measure

    return measure(matrix_plan, task, executor=executor, on_progress=on_progress)
