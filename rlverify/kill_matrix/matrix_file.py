"""The kill matrix as canonical JSON, and back."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from rlverify.evidence.reading import why_unreadable
from rlverify.evidence.seals import sealed
from rlverify.records.errors import MatrixError
from rlverify.records.matrix import Matrix

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
    :raises MatrixError: if a field is missing, unknown or mistyped, or the file was edited
    """
    try:
        matrix = _MATRIX.validate_json(text)
    except ValidationError as error:
        raise MatrixError(path, why_unreadable(error, text, AGAIN)) from error
    if to_json(matrix) != text:
        raise MatrixError(path, f"holds what no measurement writes, or was edited; {AGAIN}")
    return matrix
