"""The outcome of the tests that documents name, out of the kill matrix."""

from __future__ import annotations

from pathlib import Path

from rlverify.kill_matrix.committed import matrix_json
from rlverify.records.matrix import FaultPlan, FaultResult, Matrix, NamedSuite
from verification.pages.documents import NamedTest, load_named_tests

NAMED = ["tests/a.py::T::test_a", "tests/a.py::test_b", "tests/a.py::test_c"]
ROWS = {"b-fault": ("tests/a.py::T::test_a", "tests/z.py::test_z"), "a-fault": ("tests/a.py::T::test_a",)}
MATRIX = Matrix(
    "2026-11-27",
    tuple(
        FaultResult(FaultPlan(name, "defect", (), "x", (), ()), "killed", True, tests) for name, tests in ROWS.items()
    ),
    {"tests/a.py::T::test_a": "passed", "tests/a.py::test_b": "failed", "tests/z.py::test_z": "passed"},
    (NamedSuite("001", "tests/a.py", tuple(NAMED)),),
)


def test_without_a_matrix_nothing_is_known(tmp_path: Path) -> None:
    assert load_named_tests(tmp_path) is None


def test_every_named_test_has_its_outcome_and_what_it_kills_once(tmp_path: Path) -> None:
    (tmp_path / "matrix.json").write_text(matrix_json(MATRIX), encoding="utf-8")
    assert load_named_tests(tmp_path) == (
        NamedTest("001", "tests/a.py", "T::test_a", "passed", ("a-fault", "b-fault")),
        NamedTest("001", "tests/a.py", "test_b", "failed"),
        NamedTest("001", "tests/a.py", "test_c", "not run"),
    )
