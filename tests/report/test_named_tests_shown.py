"""The outcome of the tests that documents name, out of the kill matrix."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlverify.records.errors import EvidenceError
from rlverify.reporting.checklists import NamedTest, load_named_tests

NAMED = ["tests/a.py::T::test_a", "tests/a.py::test_b", "tests/a.py::test_c"]
MATRIX: dict[str, Any] = {
    "rows": [
        {"plan": {"fault": "b-fault", "kind": "defect"}, "killers": ["tests/a.py::T::test_a", "tests/z.py::test_z"]},
        {"plan": {"fault": "a-fault", "kind": "named"}, "killers": ["tests/a.py::T::test_a"]},
        {"plan": {"fault": "a-fault", "kind": "defect"}, "killers": ["tests/a.py::T::test_a"]},
    ],
    "tests": {"tests/a.py::T::test_a": "passed", "tests/a.py::test_b": "failed", "tests/z.py::test_z": "passed"},
    "suites": [{"document": "001", "file": "tests/a.py", "tests": NAMED}],
    "digests": {"core": "abc"},
    "schema_version": 1,
}


def test_without_a_matrix_nothing_is_known(tmp_path: Path) -> None:
    assert load_named_tests(tmp_path) is None


def test_every_named_test_has_its_outcome_and_what_it_kills_once(tmp_path: Path) -> None:
    (tmp_path / "matrix.json").write_text(json.dumps(MATRIX), encoding="utf-8")
    assert load_named_tests(tmp_path) == (
        NamedTest("001", "tests/a.py", "T::test_a", "passed", ("a-fault", "b-fault")),
        NamedTest("001", "tests/a.py", "test_b", "failed"),
        NamedTest("001", "tests/a.py", "test_c", "not run"),
    )


@pytest.mark.parametrize("text", ["{", json.dumps({**MATRIX, "suites": 1}), json.dumps({"rows": []})])
def test_a_broken_matrix_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "matrix.json").write_text(text, encoding="utf-8")
    with pytest.raises(EvidenceError, match="measure it again") as raised:
        load_named_tests(tmp_path)
    assert "\n" not in str(raised.value)
