"""A fault can be planted for a whole test session, and what becomes of it is told apart."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from verification.kill import Kill, run_under_fault

TESTS = """
from toylab.target import Average, clip

def test_low():
    assert clip(-5, 0, 3) == 0

def test_high():
    assert clip(5, 0, 3) == 3

def test_elsewhere():
    assert Average().count == 0

def test_wrong():
    assert Average().count == 1
"""


@pytest.fixture
def suite(tmp_path: Path, lab_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with tests of the toy code, in an environment where they run."""
    (tmp_path / "test_toy.py").write_text(TESTS, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", lab_environment["PYTHONPATH"])
    for name in [name for name in os.environ if name.startswith(("PYTEST_", "COV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return tmp_path


def _under(suite: Path, *tests: str, fault: str = "clip-one-sided", null: bool = False) -> Kill:
    return run_under_fault(fault, tests, root=suite, null=null, package="toylab")


def test_a_fault_that_fails_a_test_is_killed(suite: Path) -> None:
    kill = _under(suite, "test_toy.py::test_low", "test_toy.py::test_high")
    assert (kill.fate, kill.executions, kill.failed) == ("killed", 2, ("test_toy.py::test_low",))


def test_a_fault_that_fails_no_test_survives(suite: Path) -> None:
    kill = _under(suite, "test_toy.py::test_high")
    assert (kill.fate, kill.executions, kill.failed) == ("survived", 1, ())


def test_a_null_fault_survives_what_kills_the_fault(suite: Path) -> None:
    kill = _under(suite, "test_toy.py::test_low", null=True)
    assert (kill.fate, kill.executions) == ("survived", 1)
    assert "planted null-clip-one-sided: executed 1 times" in kill.output


def test_a_fault_that_never_ran_is_neither_killed_nor_survived(suite: Path) -> None:
    kill = _under(suite, "test_toy.py::test_wrong")
    assert (kill.fate, kill.failed) == ("unreached", ("test_toy.py::test_wrong",))


def test_a_passing_session_proves_nothing_when_the_fault_never_ran(suite: Path) -> None:
    assert _under(suite, "test_toy.py::test_elsewhere").fate == "unreached"


@pytest.mark.parametrize(
    ("fault", "test", "words"),
    [
        ("no-such-fault", "test_toy.py", "no fault named 'no-such-fault'"),
        ("clip-one-sided", "test_toy.py::test_gone", "not found"),
    ],
)
def test_a_session_that_cannot_run_is_an_error(suite: Path, fault: str, test: str, words: str) -> None:
    kill = _under(suite, test, fault=fault)
    assert kill.fate == "error"
    assert words in kill.output


def test_a_stale_fault_is_an_error(suite: Path) -> None:
    kill = run_under_fault("stale", ["test_toy.py"], root=suite, package="troublelab")
    assert kill.fate == "error"
    assert "fault stale is stale" in kill.output
    assert "Traceback" not in kill.output


def test_the_fault_reaches_the_workers_of_a_distributed_session(suite: Path) -> None:
    kill = _under(suite, "-p", "xdist", "-n", "1", "test_toy.py::test_low", "test_toy.py::test_high")
    assert (kill.fate, kill.executions) == ("killed", 2)
