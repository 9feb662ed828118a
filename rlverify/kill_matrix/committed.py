"""The committed kill matrix: whether it is complete and up to date, what is wrong with it, and its page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from rlverify.evidence.files import first_problem, sealed, write_files
from rlverify.kill_matrix.plan import MatrixPlan, require_test
from rlverify.project.catalogue_entries import UNWRITTEN_STATEMENT, UNWRITTEN_TITLE
from rlverify.project.content import Project
from rlverify.project.settings import ReportPaths
from rlverify.records.claims import Claim, Verdict
from rlverify.records.errors import MatrixError
from rlverify.records.matrix import FaultResult, Matrix
from rlverify.records.problems import CLAIM_FELL, HARNESS_FAILED, Problem, few
from rlverify.reporting.markdown import environment

ROLES = {
    "defect": "bug",
    "fix": "documented fix that leaves something broken",
    "named": "only named tests ask for it",
    "null": "null fault",
    "never a bug": "never a bug",
}


@dataclass(frozen=True)
class Rate:
    """Under how many rows of some kind a test failed, and of how many faults they are."""

    noticed: int
    of: int
    faults: int

    def __str__(self) -> str:
        return f"{100 * self.noticed / self.of:.1f} %" if self.of else "-"


def kill_matrix(
    matrix: Matrix, claims: Sequence[Claim], templates: Path | None = None, command: str = "rlverify"
) -> str:
    """Survivors, rates, faults and their killers by area, and what must survive."""
    must_die = [row for row in matrix.rows if not row.plan.must_survive]
    must_survive = [row for row in matrix.rows if row.plan.must_survive]
    return (
        environment(templates)
        .get_template("kill-matrix.md.j2")
        .render(
            matrix=matrix,
            command=command,
            measured=matrix.measured,
            kill_rate=kill_rate(matrix),
            false_alarm_rate=false_alarm_rate(matrix),
            survivors=[row for row in must_die if not row.as_expected],
            twice=[fault for fault, count in Counter(row.plan.fault for row in must_die).items() if count > 1],
            silent=[row for row in must_die if row.as_expected and row.blind and row.plan.kind != "fix"],
            must_die=sorted(must_die, key=lambda row: row.plan.area),
            must_survive=must_survive,
            nulls=[row for row in must_survive if row.plan.kind == "null"],
            false_alarms=[row for row in must_survive if not row.as_expected],
            passed=lambda suite: sum(matrix.tests[test] == "passed" for test in suite.tests),
            titles={claim.id: claim.title for claim in claims},
            roles=ROLES,
        )
    )


def kill_rate(matrix: Matrix) -> Rate:
    """Of the faults that a test must detect."""
    return _rate([row for row in matrix.rows if not row.plan.must_survive])


def false_alarm_rate(matrix: Matrix) -> Rate:
    """Of the faults that no test may detect."""
    return _rate([row for row in matrix.rows if row.plan.must_survive])


def _rate(rows: Sequence[FaultResult]) -> Rate:
    return Rate(sum(row.fate == "killed" for row in rows), len(rows), len({row.plan.fault for row in rows}))


_MATRIX = TypeAdapter(Matrix)
AGAIN = "measure it again with `rlverify matrix --update`"


def matrix_json(matrix: Matrix) -> str:
    """The same bytes for the same matrix, with a digest of its content."""
    return sealed(asdict(matrix))


def load_matrix(path: Path) -> Matrix | None:
    """Return the matrix in a file; None where there is no file."""
    if not path.is_file():
        return None
    try:
        text = path.read_text(encoding="utf-8")
        matrix = _MATRIX.validate_json(text)
    except (OSError, UnicodeDecodeError) as error:
        raise MatrixError(path, f"cannot be read: {error}") from error
    except ValidationError as error:
        raise MatrixError(path, f"{first_problem(error)}; {AGAIN}") from error
    if matrix_json(matrix) != text:
        raise MatrixError(path, f"holds what no measurement writes, or was edited; {AGAIN}")
    return matrix


MATRIX, REPORT = "matrix.json", "kill-matrix.md"
REMEDY = "run `rlverify matrix --update`"
MUST_BE_DETECTED_BY_ALL = ("defect", "named")
"""Roles of faults that each of the named tests must detect."""


def committed_problems(matrix_plan: MatrixPlan, paths: ReportPaths) -> list[Problem]:
    """Read the committed matrix and compare it with the claims and tests of today; plants and measures nothing."""
    if unknown := [*unknown_tests(matrix_plan)]:
        return unknown
    matrix = load_matrix(paths.reports / MATRIX)
    if matrix is None:
        missing = Problem(MATRIX, CLAIM_FELL, "which tests detect which faults was never measured", remedy=REMEDY)
        return [missing] * matrix_plan.has_tests
    problems = [*problems_of(matrix)]
    if found := [*_misfits(matrix, matrix_plan)]:
        sentence = f"measured of other faults or tests: {few(found)}"
        problems.append(Problem(MATRIX, CLAIM_FELL, sentence, remedy=REMEDY))
    report = paths.reports / REPORT
    if not report.is_file() or report.read_bytes() != render_page(matrix_plan.project, matrix).encode():
        sentence = "is not what the committed matrix gives"
        problems.append(Problem(REPORT, CLAIM_FELL, sentence, remedy="run `rlverify report`"))
    return problems


def undetected(matrix_plan: MatrixPlan) -> Iterator[Problem]:
    """Claims with a fault that must be detected, and no test that is to detect it."""
    for claim in matrix_plan.project.claims:
        if claim.fault is not None and claim.expected_verdict is Verdict.CONFIRMED and not claim.killed_by:
            sentence = f'no test is named that fails when {claim.fault} is planted; add killed_by = ["tests/..."]'
            yield Problem(claim.id, CLAIM_FELL, sentence)


def unwritten(project: Project) -> Iterator[Problem]:
    """Claims that still have a text of their skeleton."""
    for claim in project.claims:
        for name, text, skeleton in (
            ("title", claim.title, UNWRITTEN_TITLE),
            ("statement", claim.statement, UNWRITTEN_STATEMENT),
        ):
            if text == skeleton:
                yield Problem(claim.id, CLAIM_FELL, f"its {name} is still {skeleton!r}; write it in the catalogue")


def unknown_tests(matrix_plan: MatrixPlan) -> Iterator[Problem]:
    """Claims that name a test which does not exist."""
    for claim in matrix_plan.project.claims:
        for test in claim.killed_by:
            try:
                require_test(matrix_plan.root, test)
            except MatrixError as error:
                yield Problem(claim.id, HARNESS_FAILED, f"killed_by: {error.reason}")


def render_page(project: Project, matrix: Matrix) -> str:
    """The report of the matrix."""
    return kill_matrix(matrix, project.claims, project.templates, project.settings.command)


def write_report(matrix_plan: MatrixPlan, paths: ReportPaths) -> None:
    """Render the report from the committed matrix, if there is one."""
    if (matrix := load_matrix(paths.reports / MATRIX)) is not None:
        write_files(paths.reports, {REPORT: render_page(matrix_plan.project, matrix)})


def problems_of(matrix: Matrix) -> Iterator[Problem]:
    """Every fault with an unexpected fate, and every test that misses its fault."""
    for row in matrix.rows:
        if not row.as_expected:
            code = HARNESS_FAILED if row.plan.must_survive and row.fate == "unreached" else CLAIM_FELL
            yield Problem(row.plan.fault, code, _sentence(row))
        elif row.plan.kind in MUST_BE_DETECTED_BY_ALL and row.blind:
            sentence = f"({row.plan.kind}) named as a test that detects it, but does not: {few(row.blind)}"
            yield Problem(row.plan.fault, CLAIM_FELL, sentence)


def _sentence(row: FaultResult) -> str:
    """What became of a fault that did not meet its fate."""
    if row.plan.must_survive:
        if row.fate == "unreached":
            return f"({row.plan.kind}) no test of {row.plan.area} runs it, so that its survival proves nothing"
        return f"({row.plan.kind}) a false alarm: {few(row.killers)} failed"
    unreached = row.fate == "unreached"
    if not row.plan.checks:
        found = f"no test of area {row.plan.area!r} {'runs' if unreached else 'detects'} it"
        advice = f'add killed_by = ["tests/..."] to {few(row.plan.claims)}, with a test that fails when it is planted'
    elif unreached:
        found = f"{few(row.plan.checks)} should have detected it, but no test runs it"
        advice = "call the code that it replaces in the test, or correct its target"
    else:
        return f"({row.plan.kind}) SURVIVED: {few(row.plan.checks)} should have detected it"
    return f"({row.plan.kind}) {row.fate.upper()}: {found}; {advice}"


def _misfits(matrix: Matrix, matrix_plan: MatrixPlan) -> Iterator[str]:
    """What of the matrix is not of the faults and tests of today."""
    was, now = (
        {f"{plan.fault} ({plan.kind})": (plan.claims, plan.checks) for plan in plans}
        for plans in ([row.plan for row in matrix.rows], matrix_plan.plans)
    )
    yield from (name for name in {**now, **was} if was.get(name) != now.get(name))
    if matrix.suites != matrix_plan.suites:
        yield "the tests that the documents name"
