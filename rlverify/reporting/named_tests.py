"""The tests that documents name, as they went on the code as it is: read from the committed kill matrix."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from rlverify.evidence.reading import first_problem, text_of
from rlverify.records.checklists import NamedTest
from rlverify.records.errors import EvidenceError

MATRIX = "matrix.json"


class _Lenient(BaseModel):
    """Of the matrix only what is shown here; whether all of it can be believed, its own reader tells."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class _Plan(_Lenient):
    fault: str


class _Row(_Lenient):
    plan: _Plan
    killers: tuple[str, ...]


class _Suite(_Lenient):
    document: str
    file: str
    tests: tuple[str, ...]


class _Matrix(_Lenient):
    rows: tuple[_Row, ...]
    tests: dict[str, str]
    suites: tuple[_Suite, ...]


def load_named_tests(reports: Path) -> tuple[NamedTest, ...] | None:
    """Every test that a document names, with its outcome and the faults that it detects; None without a matrix.

    :param reports: the folder of reports
    :raises EvidenceError: if the matrix cannot be read
    """
    path = reports / MATRIX
    if not path.is_file():
        return None
    try:
        matrix = _Matrix.model_validate_json(text_of(path))
    except ValidationError as error:
        raise EvidenceError(path, f"{first_problem(error)}; measure it again") from error
    return tuple(_named(matrix, suite, test) for suite in matrix.suites for test in suite.tests)


def _named(matrix: _Matrix, suite: _Suite, test: str) -> NamedTest:
    kills = sorted({row.plan.fault for row in matrix.rows if test in row.killers})
    name = test.removeprefix(f"{suite.file}::")
    return NamedTest(suite.document, suite.file, name, matrix.tests.get(test, "not run"), tuple(kills))
