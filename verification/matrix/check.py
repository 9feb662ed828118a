"""What is wrong with a kill matrix, and whether the committed one is of the faults and tests of today."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from verification.audit import Problem, Shelf
from verification.evidence import write_files
from verification.exit_codes import CLAIM_FELL, HARNESS_FAILED
from verification.matrix.digests import digests_of
from verification.matrix.file import load
from verification.matrix.plan import Bench
from verification.matrix.records import Matrix, Plan, Retold, Row
from verification.report.kill_matrix import kill_matrix

MATRIX, REPORT = "matrix.json", "kill-matrix.md"
REMEDY = "run `rlverify matrix --update`"
SHOWN = 3


@dataclass(frozen=True)
class Standing:
    """The committed matrix as the gate sees it.

    :param matrix: None where none is committed
    :param notes: what is worth a line and no failure
    """

    matrix: Matrix | None
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()


def path_of(shelf: Shelf) -> Path:
    """Where the matrix is committed."""
    return shelf.reports / MATRIX


def standing(bench: Bench, shelf: Shelf) -> Standing:
    """Read the committed matrix and hold it against the faults and tests of today; plants and measures nothing.

    A laboratory without tests beside it has nothing that could kill, so that no matrix is asked for.

    :raises MatrixError: if it is there and cannot be believed
    """
    matrix = load(path_of(shelf))
    if matrix is None:
        missing = Problem(MATRIX, CLAIM_FELL, f"which tests notice which faults was never measured; {REMEDY}")
        return Standing(None, (missing,) * bench.has_tests)
    today = digests_of(bench)
    problems = [*problems_of(matrix)]
    if found := [*_misfits(matrix, bench, today.faults, today.tests)]:
        problems.append(Problem(MATRIX, CLAIM_FELL, f"measured of other faults or tests: {few(found)}; {REMEDY}"))
    report = shelf.reports / REPORT
    if not report.is_file() or report.read_bytes() != kill_matrix(matrix, bench.laboratory.claims).encode():
        problems.append(Problem(REPORT, CLAIM_FELL, "is not what the committed matrix gives; run `rlverify report`"))
    note = (
        f"{MATRIX} was measured of another core; `make test-slow` plants what must be killed again, {REMEDY} all of it"
    )
    return Standing(matrix, tuple(problems), (note,) * (matrix.digests.core != today.core))


def write_report(bench: Bench, shelf: Shelf) -> None:
    """Render the report from the committed matrix, if there is one."""
    if (matrix := load(path_of(shelf))) is not None:
        write_files(shelf.reports, {REPORT: kill_matrix(matrix, bench.laboratory.claims)})


def problems_of(matrix: Matrix) -> Iterator[Problem]:
    """Every fault that did not meet its fate, and every weak test whose fault nothing of ours kills."""
    for row in matrix.rows:
        if not row.as_expected:
            code = HARNESS_FAILED if row.plan.must_survive and row.fate == "unreached" else CLAIM_FELL
            yield Problem(row.plan.fault, code, _sentence(row))
    for each in matrix.history:
        if not matrix.killers_of(each.weak.fault):
            sentence = f"nothing of ours kills {each.weak.fault}, for which this weak test stands"
            yield Problem(each.weak.test, CLAIM_FELL, sentence)


def _sentence(row: Row) -> str:
    """What became of a fault that did not meet its fate."""
    if row.plan.must_survive:
        if row.fate == "unreached":
            return f"({row.plan.kind}) no test of {row.plan.area} runs it, so that its survival proves nothing"
        return f"({row.plan.kind}) a false alarm: {few(row.killers)} failed"
    looked = few(row.plan.checks) if row.plan.checks else "nobody"
    return f"({row.plan.kind}) {row.fate.upper()}: {looked} should have noticed"


def _misfits(matrix: Matrix, bench: Bench, faults: Mapping[str, str], tests: Mapping[str, str]) -> Iterator[str]:
    """Why the matrix is not of the faults and tests of today."""
    yield from _differences(_by_role(row.plan for row in matrix.rows), _by_role(bench.plans))
    yield from _differences(matrix.digests.faults, faults)
    yield from _differences(matrix.digests.tests, tests)
    if matrix.suites != bench.suites:
        yield "the tests that the documents name have changed"
    if tuple(each.weak for each in matrix.history) != bench.weak_tests:
        yield "the weak tests have changed"


def compare(committed: Matrix, fresh: Matrix) -> Iterator[str]:
    """Where a fresh matrix differs from the committed one, as sentences; it may in the core that it was measured of."""
    yield from _differences(committed.digests.faults, fresh.digests.faults)
    yield from _differences(committed.digests.tests, fresh.digests.tests)
    was, now = (_by_role(row.plan for row in matrix.rows) for matrix in (committed, fresh))
    yield from _differences(was, now)
    fates = {(row.plan.fault, row.plan.kind): row for row in committed.rows}
    for row in fresh.rows:
        before = fates.get((row.plan.fault, row.plan.kind), row)
        if (before.fate, before.killers) != (row.fate, row.killers):
            yield f"{row.plan.fault} ({row.plan.kind}): {_told(row)} instead of {_told(before)}"
    yield from _differences(committed.tests, fresh.tests)
    if committed.suites != fresh.suites:
        yield "the tests that the documents name have changed"
    yield from _differences(*(_by_pair(matrix) for matrix in (committed, fresh)))


def _by_role(plans: Iterable[Plan]) -> dict[str, Plan]:
    return {f"{plan.fault} ({plan.kind})": plan for plan in plans}


def _by_pair(matrix: Matrix) -> dict[str, Retold]:
    return {f"{each.weak.test} under {each.weak.fault}": each for each in matrix.history}


def _differences(was: Mapping[str, object], now: Mapping[str, object]) -> Iterator[str]:
    yield from (f"{name} is new" for name in now if name not in was)
    yield from (f"{name} is gone" for name in was if name not in now)
    yield from (f"{name} has changed" for name in now if name in was and was[name] != now[name])


def _told(row: Row) -> str:
    return f"{row.fate} by {len(row.killers)} tests" if row.killers else row.fate


def few(sentences: Iterable[str]) -> str:
    """The first of them, and how many more there are."""
    found = [*sentences]
    shown = found if len(found) <= SHOWN + 1 else [*found[:SHOWN], f"and {len(found) - SHOWN} more"]
    return ", ".join(shown)
