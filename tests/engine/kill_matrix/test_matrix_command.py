"""What a user meets of the kill matrix, on a copy of the toy project with tests of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from unittest import mock

import pytest

from tests.engine.checkouts import commit, commit_of_words, copy_project, git, replace
from tests.engine.in_process import rlverify_here

TESTS = """
from toyproject.target import Average, clip

def test_restore():
    restored = Average.restored({"count": 2, "total": 3.0})
    assert (restored.count, restored.total) == (2, 3.0)

def test_low():
    assert clip(-5, 0, 3) == 0

def test_count():
    average = Average()
    average.add(1.0)
    assert average.count == 1

def test_mean():
    average = Average()
    average.add(2.0)
    assert average.mean == 2.0
"""
NAMED = '[[suite]]\ndocument = "002"\nfile = "tests/test_toy.py"\n[suite.tests]\n"test_mean" = ["mean-of-nothing"]\n'
FILES = {
    "tests/test_toy.py": TESTS,
    "tests/conftest.py": "",
    "toyproject/named_tests.toml": NAMED,
    "pytest.ini": "[pytest]\n",
}


def rlverify(checkout: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    environment = {**kept, "OMP_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    with mock.patch.dict(os.environ, environment, clear=True):
        return rlverify_here("--project", checkout, *arguments)


def gate(checkout: Path) -> tuple[int, list[str]]:
    done = rlverify(checkout, "gate")
    lines = (done.stderr + done.stdout).splitlines()
    return done.returncode, [line for line in lines if line != "a probe may print"]


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of the toy project with its evidence and its matrix; treat as read-only."""
    checkout = tmp_path_factory.mktemp("committed")
    copy_project("toyproject", checkout)
    for name, text in FILES.items():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(text, encoding="utf-8")
    for command in ("audit", "matrix"):
        done = rlverify(checkout, command, "--update")
        assert done.returncode == 0, done.stdout + done.stderr
    git(checkout, "init", "--quiet")
    commit(checkout, "toy")
    commit_of_words(checkout)
    return checkout


@pytest.fixture
def checkout(committed: Path, tmp_path: Path) -> Path:
    """A copy of it to be changed."""
    return shutil.copytree(committed, tmp_path / "checkout")


def test_what_was_committed_is_measured_again(committed: Path) -> None:
    before = {path.name: path.read_bytes() for path in (committed / "reports").glob("*matrix*")}
    assert set(before) == {"matrix.json", "kill-matrix.md"}
    done = rlverify(committed, "matrix")
    assert (done.returncode, done.stderr) == (0, "")
    summary = "killed 5 of 5 faults (100.0 %), false alarms 0 of 2 (0.0 %); nothing to report"
    assert done.stdout.splitlines()[-1] == summary
    assert {path.name: path.read_bytes() for path in (committed / "reports").glob("*matrix*")} == before


def test_the_committed_matrix_holds_every_role(committed: Path) -> None:
    content = json.loads((committed / "reports" / "matrix.json").read_text(encoding="utf-8"))
    fates = {(row["plan"]["fault"], row["plan"]["kind"]): (row["fate"], row["killers"]) for row in content["rows"]}
    assert fates == {
        ("restored-forgets", "defect"): ("killed", ["tests/test_toy.py::test_restore"]),
        ("restored-keeps-total", "fix"): ("killed", ["tests/test_toy.py::test_restore"]),
        ("clip-one-sided", "defect"): ("killed", ["tests/test_toy.py::test_low"]),
        ("clip-other-order", "never a bug"): ("survived", []),
        ("add-twice", "defect"): ("killed", ["tests/test_toy.py::test_count"]),
        ("null-add-twice", "null"): ("survived", []),
        ("mean-of-nothing", "named"): ("killed", ["tests/test_toy.py::test_mean"]),
    }
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", content["measured"])


def test_the_gate_believes_the_committed_matrix(committed: Path) -> None:
    code, lines = gate(committed)
    assert (code, lines[-1]) == (0, "6 of 6 claims as expected; nothing to report")


@pytest.mark.slow
def test_the_gate_asks_for_a_matrix_where_there_are_tests(checkout: Path) -> None:
    (checkout / "reports" / "matrix.json").unlink()
    code, lines = gate(checkout)
    assert code == 1
    assert "matrix.json: which tests detect which faults was never measured; run `rlverify matrix --update`" in lines
    shutil.rmtree(checkout / "tests")
    gone = "TOY-02: killed_by: tests/test_toy.py is not a test: No such file or directory; correct the id"
    code, lines = gate(checkout)
    assert (code, gone in lines) == (2, True)
    done = rlverify(checkout, "report")
    assert (done.returncode, f"rlverify: {gone}" in done.stderr.splitlines()) == (2, True)
    assert rlverify(checkout, "matrix").stderr.startswith("rlverify: kill matrix, ")


@pytest.mark.parametrize(
    ("new", "code", "told"),
    [
        ("clip(-5, 0, 3) <= 0", 1, "clip-one-sided: (defect) SURVIVED: tests/test_toy.py should have detected it"),
        ("0 == clip(-5, 0, 3)", 0, "faults planted again: 2, as they, their targets or their tests changed"),
    ],
)
def test_the_gate_plants_the_faults_of_an_edited_test_again(checkout: Path, new: str, code: int, told: str) -> None:
    replace(checkout / "tests/test_toy.py", "clip(-5, 0, 3) == 0", new)
    ended, lines = gate(checkout)
    assert (ended, any(told in line for line in lines)) == (code, True), lines


def test_a_survivor_fails_the_matrix_and_once_committed_the_gate(checkout: Path) -> None:
    replace(checkout / "tests/test_toy.py", "clip(-5, 0, 3) == 0", "clip(-5, 0, 3) <= 0")
    done = rlverify(checkout, "matrix", "--update", "--jobs", "2")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    survived = lines.index("clip-one-sided (defect): SURVIVED")
    assert survived < lines.index("+++ clip-one-sided") < lines.index("+    return min(value, high)")
    assert lines.index("should have detected it, and did not: tests/test_toy.py") < len(lines) - 4
    sentence = "clip-one-sided: (defect) SURVIVED: tests/test_toy.py should have detected it"
    assert sentence in lines
    code, lines = gate(checkout)
    assert code == 1
    assert sentence in lines
    assert "### clip-one-sided" in (checkout / "reports" / "kill-matrix.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_failing_test_disqualifies_itself_and_nothing_is_replaced(checkout: Path) -> None:
    before = (checkout / "reports" / "matrix.json").read_bytes()
    replace(checkout / "tests/test_toy.py", "average.mean == 2.0", "average.mean == 3.0")
    done = rlverify(checkout, "matrix", "--update")
    assert done.returncode == 2
    assert "tests/test_toy.py: failed on healthy code, so that it can prove nothing" in done.stdout
    assert (checkout / "reports" / "matrix.json").read_bytes() == before


def test_why_sessions_could_not_be_forked_is_on_stderr(checkout: Path) -> None:
    broken = 'import sys\n\nif "pytest" in sys.modules:\n    import no_such_module\n'
    (checkout / "toyproject/faults/broken.py").write_text(broken, encoding="utf-8")
    replace(checkout / "tests/test_toy.py", "clip(-5, 0, 3) == 0", "clip(-5, 0, 3) == 1")
    done = rlverify(checkout, "matrix", "--fault", "clip-one-sided")
    assert done.returncode == 2
    assert "ModuleNotFoundError: No module named 'no_such_module'" in done.stderr


@pytest.mark.slow
def test_one_fault_is_shown_with_its_killers_and_its_difference(committed: Path) -> None:
    done = rlverify(committed, "matrix", "--fault", "clip-one-sided")
    assert (done.returncode, done.stderr) == (0, "")
    for line in ("clip-one-sided (defect): KILLED", "killed by tests/test_toy.py::test_low", "+++ clip-one-sided"):
        assert line in done.stdout.splitlines()
    content = json.loads(rlverify(committed, "matrix", "--fault", "clip-one-sided", "--json").stdout)
    assert (content["exit_code"], len(content["matrix"]["rows"])) == (0, 1)


@pytest.mark.slow
def test_a_fault_that_cannot_be_measured_is_one_line(committed: Path) -> None:
    done = rlverify(committed, "matrix", "--fault", "clip-one-side")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "rlverify: no fault named 'clip-one-side'; did you mean 'clip-one-sided'?\n"
    assert rlverify(committed, "matrix", "--fault", "clip-one-sided", "--update").returncode == 2


@pytest.mark.slow
def test_a_broken_matrix_is_one_line(checkout: Path) -> None:
    path = checkout / "reports" / "matrix.json"
    path.write_text(
        path.read_text(encoding="utf-8").replace('"fate": "killed"', '"fate": "survived"'), encoding="utf-8"
    )
    for command in (["gate"], ["report"]):
        done = rlverify(checkout, *command)
        assert done.returncode == 2
        said = [line for line in done.stderr.splitlines() if line != "a probe may print"]
        assert len(said) == 1
        assert said[0].startswith("rlverify: kill matrix, ")
    assert rlverify(checkout, "matrix", "--update").returncode == 0
    assert gate(checkout)[0] == 0


def test_the_report_is_rendered_from_the_committed_matrix(checkout: Path, committed: Path) -> None:
    page = checkout / "reports" / "kill-matrix.md"
    page.write_text("edited", encoding="utf-8")
    line = "kill-matrix.md: is not what the committed matrix gives; run `rlverify report`"
    code, lines = gate(checkout)
    assert (code, lines[0]) == (1, line)
    done = rlverify(checkout, "report", "--check")
    assert (done.returncode, done.stderr) == (1, f"rlverify: {line}\n")
    assert rlverify(checkout, "report").returncode == 0
    assert page.read_bytes() == (committed / "reports" / "kill-matrix.md").read_bytes()
