"""``rlverify matrix``: measures, compares with what is committed, or replaces it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from verification.audit import Problem, Shelf, committed_records, exit_code_of, write_report
from verification.errors import MatrixError
from verification.evidence import check_writable, load_folder, write_files
from verification.exit_codes import CLAIM_FELL
from verification.matrix.check import MATRIX, REMEDY, REPORT, compare, few, path_of, problems_of
from verification.matrix.difference import difference
from verification.matrix.file import load, to_json
from verification.matrix.plan import Bench, Task
from verification.matrix.records import Matrix
from verification.report.kill_matrix import kill_matrix

if TYPE_CHECKING:
    from verification.matrix.measure import Measurement

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Result:
    """What was measured and all that is wrong with it.

    :param differences: of each fault that was asked for by its name, beside the healthy member
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
            "exit_code": self.exit_code,
            "problems": [asdict(problem) for problem in self.problems],
        }


def run_matrix(bench: Bench, shelf: Shelf, *, update: bool, processes: int, on_progress: Progress) -> Result:
    """Measure the whole matrix; compare with the committed one, or replace it and render the pages.

    Where something could not be measured, nothing is compared or written. Else what was measured is left in the working
    folder in either case.

    :raises MatrixError: if there are no tests, or no pytest that could run them
    :raises EvidenceError: if a folder cannot be written; nothing has been changed then
    """
    for folder in (shelf.working, shelf.reports)[: 1 + update]:
        check_writable(folder)
    committed = None if update else load(path_of(shelf))
    task = Task(bench.plans, bench.suites, bench.weak_tests)
    found = _measure(bench, task, processes=processes, on_progress=on_progress)
    problems = [*found.problems, *problems_of(found.matrix)]
    if found.problems:
        return Result(found.matrix, tuple(problems))
    files = {MATRIX: to_json(found.matrix), REPORT: kill_matrix(found.matrix, bench.laboratory.claims)}
    write_files(shelf.working, files)
    if update:
        write_files(shelf.reports, files)
        # The other pages show which tests passed.
        write_report(bench.laboratory, shelf, committed_records(bench.laboratory, load_folder(shelf.evidence)))
    else:
        problems += _compared(committed, found.matrix)
    return Result(found.matrix, tuple(problems))


def run_fault(bench: Bench, name: str, *, processes: int, on_progress: Progress) -> Result:
    """Measure one fault, in each of its roles; nothing is compared or written.

    :raises UnknownNameError: if there is no such fault
    :raises MatrixError: if it is planted for nobody, or there are no tests, or no pytest that could run them
    """
    asked = bench.laboratory.fault(name)
    plans = tuple(plan for plan in bench.plans if plan.fault == name)
    if not plans:
        raise MatrixError(name, "no claim and no named test expects anything of it, so there is nothing to run")
    found = _measure(bench, Task(plans), processes=processes, on_progress=on_progress)
    return Result(found.matrix, (*found.problems, *problems_of(found.matrix)), {name: difference(asked)})


def _measure(bench: Bench, task: Task, *, processes: int, on_progress: Progress) -> Measurement:
    """Measure; what runs the tests is imported here alone, for without them nobody needs pytest."""
    if not bench.has_tests:
        raise MatrixError(bench.root / "tests", "is not there: an installed package comes without the tests that kill")
    if find_spec("pytest") is None:
        raise MatrixError("pytest", "cannot be imported, which runs the tests: pip install 'rlverify[dev]'")
    from verification.matrix.measure import measure

    return measure(bench, task, processes=processes, on_progress=on_progress)


def _compared(committed: Matrix | None, fresh: Matrix) -> list[Problem]:
    if committed is None:
        return [Problem(MATRIX, CLAIM_FELL, f"is not there to compare with; {REMEDY}")]
    differences = [*compare(committed, fresh)]
    sentence = f"differs from the committed one: {few(differences)}; if that is right, {REMEDY}"
    return [Problem(MATRIX, CLAIM_FELL, sentence)] * bool(differences)
