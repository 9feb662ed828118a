"""The kill matrix as canonical JSON, and back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from rlverify.evidence.reading import why_unreadable
from rlverify.evidence.seals import sealed
from rlverify.records.errors import MatrixError
from rlverify.records.matrix import FaultResult, Matrix

_MATRIX = TypeAdapter(Matrix)
AGAIN = "measure it again with `rlverify matrix --update`"


def to_json(matrix: Matrix) -> str:
    """The same bytes for the same matrix, with a digest of its content."""
    return sealed(asdict(matrix))


def load(path: Path) -> Matrix | None:
    """The matrix in a file; None where there is no file.

    :raises MatrixError: if it cannot be read or believed
    """
    try:
        return from_json(path.read_text(encoding="utf-8"), path)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise MatrixError(path, f"cannot be read: {error}") from error


def from_json(text: str, path: Path) -> Matrix:
    """Read what `to_json` wrote.

    :param path: where it stands, for the error
    :raises MatrixError: if a field is missing, unknown or mistyped, or the fates do not follow from the killers
    """
    try:
        matrix = _MATRIX.validate_json(text)
    except ValidationError as error:
        raise MatrixError(path, why_unreadable(error, text, AGAIN)) from error
    for impossible in _impossible(matrix):
        raise MatrixError(path, f"{impossible}; {AGAIN}")
    if to_json(matrix) != text:
        raise MatrixError(path, f"holds what no measurement writes, or was edited; {AGAIN}")
    return matrix


def _impossible(matrix: Matrix) -> Iterator[str]:
    """What no measurement can have given."""
    roles = [(row.plan.fault, row.plan.kind) for row in matrix.rows]
    for fault, kind in {role for role in roles if roles.count(role) > 1}:
        yield f"{fault} ({kind}) is in it twice"
    for row in matrix.rows:
        yield from (f"{row.plan.fault}: {each}" for each in _impossible_in(row, matrix))
    unknown = {test for suite in matrix.suites for test in suite.tests} - set(matrix.tests)
    yield from (f"{test} is named by a document and was not run" for test in sorted(unknown))
    bad = sorted(test for test, outcome in matrix.tests.items() if outcome != "passed")
    yield from (f"{test} {matrix.tests[test]} on healthy code" for test in bad)
    bad = sorted(each.weak.test for each in matrix.history if each.healthy == "failed")
    yield from (f"{test} failed on healthy code" for test in bad)


def _impossible_in(row: FaultResult, matrix: Matrix) -> Iterator[str]:
    if unknown := sorted(set(row.killers) - set(matrix.tests)):
        yield f"{unknown[0]} killed it, of which nothing is known on healthy code"
    if row.fate != "unreached" and (row.fate == "killed") != bool(row.killers):
        yield f"{row.fate}, with {len(row.killers)} killers"
    if row.reached != (row.fate != "unreached"):
        yield f"{row.fate}, but {'' if row.reached else 'never '}executed"
