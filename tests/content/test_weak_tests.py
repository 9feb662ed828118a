"""The weak tests of ``verification/weak_tests/history.toml`` let the fault through that each of them should detect."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from rlverify.kill_matrix.sessions import run_tests

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "verification" / "weak_tests"
HISTORY = tomllib.loads((FOLDER / "history.toml").read_text(encoding="utf-8"))["weak_test"]
AS_THE_ORIGINALS = ("-o", "filterwarnings=", "-W", "ignore::pytest.PytestReturnNotNoneWarning")
"""Weak tests run where a warning is no failure, as those that they are modelled on did."""


def test_the_weak_tests_are_in_their_folder_and_in_no_run_of_the_suite() -> None:
    paths = {ROOT / each["test"].partition("::")[0] for each in HISTORY}
    assert paths == {path for path in FOLDER.glob("*.py") if path.name != "__init__.py"}
    assert not [path for path in paths if path.name.startswith("test_") or path.name.endswith("_test.py")]


@pytest.mark.slow
@pytest.mark.parametrize("weak", HISTORY, ids=lambda each: f"{each['test'].rpartition('/')[2]}-{each['fault']}")
def test_a_weak_test_passes_on_healthy_code_and_misses_its_fault(weak: dict[str, str]) -> None:
    given = [*AS_THE_ORIGINALS, weak["test"]]
    healthy, faulty = run_tests(given, root=ROOT), run_tests(["--plant", weak["fault"], *given], root=ROOT)
    assert healthy.outcome is not None, healthy.output
    assert (healthy.failed, healthy.errors) == ((), ()), healthy.output
    assert faulty.outcome is not None, faulty.output
    assert bool(faulty.failed) == weak["weakness"].startswith("None for the bug itself"), faulty.output
