"""A fault can be planted for a whole test session, and what becomes of it is told apart."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlverify.kill_matrix.sessions import TestRun, run_tests, run_under_faults
from tests.engine.project_folders import write_settings

TESTS = """
import pytest
from toyproject.target import Average, clip

@pytest.fixture
def clipped():
    assert clip(-5, 0, 3) == 0

def test_with_fixture(clipped):
    pass

@pytest.mark.parametrize("value", [-5, 5], ids=["to o low", "too high"])
def test_ends(value):
    assert 0 <= clip(value, 0, 3) <= 3

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
def suite(tmp_path: Path, project_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a project with tests of the toy code, in an environment where they run."""
    write_settings(tmp_path, "toyproject")
    (tmp_path / "test_toy.py").write_text(TESTS, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    monkeypatch.setenv("OMP_NUM_THREADS", project_environment["OMP_NUM_THREADS"])
    for name in [name for name in os.environ if name.startswith(("PYTEST_", "COV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return tmp_path


def _under(suite: Path, *tests: str, fault: str = "clip-one-sided", null: bool = False) -> TestRun:
    return run_under_faults([fault], tests, root=suite, null=null)


@pytest.mark.parametrize(
    ("tests", "null", "fate", "executions", "failed"),
    [
        (["test_low", "test_high"], False, "killed", 2, ["test_low"]),
        (["test_high"], False, "survived", 1, []),
        (["test_low"], True, "survived", 1, []),
        (["test_wrong"], False, "unreached", 0, ["test_wrong"]),
        (["test_elsewhere"], False, "unreached", 0, []),
        (["test_ends"], False, "killed", 2, ["test_ends[to o low]"]),
    ],
)
def test_a_fault_is_killed_by_what_fails_where_it_ran(
    suite: Path, tests: list[str], null: bool, fate: str, executions: int, failed: list[str]
) -> None:
    kill = _under(suite, *(f"test_toy.py::{test}" for test in tests), null=null)
    assert (kill.fate, kill.executions) == (fate, executions)
    assert kill.failed == tuple(f"test_toy.py::{test}" for test in failed)
    proves_nothing = ": this session proves nothing about it" * (not executions)
    assert f"planted {'null-' * null}clip-one-sided: executed {executions} times{proves_nothing}" in kill.output


def test_a_test_that_cannot_be_set_up_kills_nothing(suite: Path) -> None:
    kill = _under(suite, "test_toy.py::test_with_fixture")
    assert (kill.fate, kill.failed, kill.errors) == ("error", (), ("test_toy.py::test_with_fixture",))
    both = _under(suite, "test_toy.py::test_with_fixture", "test_toy.py::test_low")
    assert (both.fate, both.failed, both.errors) == ("killed", ("test_toy.py::test_low",), kill.errors)


def test_a_file_that_cannot_be_imported_kills_nothing(suite: Path) -> None:
    (suite / "test_broken.py").write_text(
        "from toyproject.target import clip\n\nclip(5, 0, 3).gone\n", encoding="utf-8"
    )
    kill = _under(suite, "test_broken.py")
    assert (kill.fate, kill.failed, kill.errors) == ("error", (), ("test_broken.py",))


def test_settings_of_the_outer_session_do_not_reach_the_inner_one(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outer = {
        "PYTEST_ADDOPTS": "-p pytest_cov --cov=nothing --cov-fail-under=95",
        "PYTEST_PLUGINS": "no_such_plugin",
        "COV_CORE_SOURCE": "nothing",
        "COVERAGE_PROCESS_START": "no-such-file",
    }
    for name, value in outer.items():
        monkeypatch.setenv(name, value)
    test = f"import os\n\ndef test_env():\n    assert not {{*{[*outer]}}} & {{*os.environ}}\n"
    (suite / "test_env.py").write_text(test, encoding="utf-8")
    assert _under(suite, "test_env.py", "test_toy.py::test_high").fate == "survived"


def test_the_temporary_folders_of_a_session_are_its_own_and_go_with_it(suite: Path) -> None:
    """Those that pytest shares out are cleaned by every session of a user, also while another is about to do so."""
    note = suite / "note"
    test = f"def test(tmp_path):\n    open({str(note)!r}, 'w').write(str(tmp_path))\n"
    (suite / "test_folder.py").write_text(test, encoding="utf-8")
    assert _under(suite, "test_folder.py", "test_toy.py::test_high").fate == "survived"
    folder = Path(note.read_text(encoding="utf-8"))
    assert not any(part.startswith("pytest-of-") for part in folder.parts)
    assert not folder.exists()


def test_a_session_that_fails_without_a_failed_test_kills_nothing(suite: Path) -> None:
    (suite / "conftest.py").write_text(
        "def pytest_sessionfinish(session):\n    session.exitstatus = 1\n", encoding="utf-8"
    )
    kill = _under(suite, "test_toy.py::test_high")
    assert (kill.fate, kill.failed, kill.errors) == ("error", (), ())


def test_several_null_faults_share_a_session_and_each_must_run(suite: Path) -> None:
    faults = ["clip-one-sided", "add-twice"]
    (suite / "test_both.py").write_text(TESTS + "\n\ndef test_add():\n    Average().add(1)\n", encoding="utf-8")

    def under(*tests: str) -> TestRun:
        return run_under_faults(faults, tests, root=suite, null=True)

    assert (under("test_both.py::test_low").fate, under("test_both.py::test_add").fate) == ("unreached", "unreached")
    kill = under("test_both.py::test_low", "test_both.py::test_add")
    assert (kill.fate, kill.executions) == ("survived", 2)


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


def test_a_fault_of_a_module_that_is_named_beside_is_planted_too(suite: Path) -> None:
    (suite / "mine.py").write_text(
        "from rlverify import fault\nfrom rlverify.project.fingerprint import member_digest\n"
        "from toyproject.target import clip\n\n"
        "@fault('of-mine', target='toyproject.target:clip', pins=member_digest(clip))\n"
        "def unclipped(value, low, high):\n    return value\n",
        encoding="utf-8",
    )
    kill = _under(suite, "-p", "mine", "test_toy.py::test_low", fault="of-mine")
    assert (kill.fate, kill.executions) == ("killed", 1), kill.output


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({"broken/faults/bugs.py": "import no_such_need\n"}, "No module named 'no_such_need'"),
        ({"broken/faults/bugs.py": "def unfinished(:\n"}, "SyntaxError: invalid syntax"),
        (
            {"broken/faults/bugs.py": "from rlverify import fault\n\nfault('nowhere', target='clip', pins='')\n"},
            "nowhere: target 'clip' must read package.module:function",
        ),
        ({"pyproject.toml": "[tool.rlverify]\nunder_test = ['toyproject']\n"}, "content: is missing"),
        ({"pyproject.toml": ""}, "no pyproject.toml with a table [tool.rlverify]"),
        ({"pyproject.toml": "[tool.rlverify]\ncontent = 'nosuch'\nunder_test = ['test_toy']\n"}, "'nosuch'"),
    ],
)
def test_a_session_says_why_the_project_cannot_be_used(suite: Path, broken: dict[str, str], words: str) -> None:
    """The process that forks sessions cannot start, and the session runs in a fresh one, which says why."""
    write_settings(suite, "broken")
    for name, text in broken.items():
        (suite / name).parent.mkdir(parents=True, exist_ok=True)
        (suite / name).write_text(text, encoding="utf-8")
    kill = _under(suite, "test_toy.py::test_low")
    assert (kill.fate, kill.executions, kill.failed) == ("error", 0, ())
    assert words in kill.output
    assert "SyntaxError" in words or "INTERNALERROR" not in kill.output


def test_without_a_project_nothing_can_be_planted_and_tests_run_as_ever(suite: Path) -> None:
    (suite / "pyproject.toml").unlink()
    (suite / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n", encoding="utf-8")
    (suite / "test_toy.py").write_text("def test_any():\n    pass\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "rlverify"]
    done = subprocess.run(command, cwd=suite, capture_output=True, text=True, check=False)
    assert (done.returncode, "1 passed" in done.stdout) == (0, True)
    done = subprocess.run(
        [*command, "--plant", "clip-one-sided"], cwd=suite, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.count("\n"), "INTERNALERROR" in done.stderr) == (4, 2, False)
    assert "run `rlverify init` here" in done.stderr


def test_the_fault_reaches_the_workers_of_a_distributed_session(suite: Path) -> None:
    kill = _under(suite, "-p", "xdist", "-n", "1", "test_toy.py::test_low", "test_toy.py::test_high")
    assert (kill.fate, kill.executions) == ("killed", 2)


def test_a_mistake_in_a_fault_is_an_error_whatever_the_test_makes_of_it(suite: Path) -> None:
    (suite / "test_half.py").write_text(
        "import pytest\nfrom troubleproject.target import half\n\n"
        "def test_half():\n    with pytest.raises(TypeError):\n        half(3)\n\n"
        "def test_caught():\n    try:\n        half(3)\n    except TypeError:\n        pytest.fail('noticed')\n",
        encoding="utf-8",
    )
    write_settings(suite, "troubleproject")
    for test in ("test_half.py::test_half", "test_half.py::test_caught"):
        kill = _under(suite, test, fault="crashing")
        assert (kill.fate, kill.failed, kill.errors) == ("error", (), (test,))


def test_a_session_that_does_not_end_is_an_error(suite: Path) -> None:
    (suite / "test_endless.py").write_text("def test_endless():\n    while True:\n        pass\n", encoding="utf-8")
    kill = run_under_faults(["clip-one-sided"], ["test_endless.py"], root=suite, limit=0.5)
    assert kill.fate == "error"
    assert "stopped after 0.5 s" in kill.output


def test_without_a_fault_every_outcome_is_told(suite: Path) -> None:
    more = "\n\n@pytest.mark.skip\ndef test_skipped():\n    pass\n"
    more += "\n\n@pytest.mark.xfail\ndef test_known():\n    assert False\n"
    (suite / "test_toy.py").write_text(TESTS + more, encoding="utf-8")
    run = run_tests(["test_toy.py"], root=suite)
    assert run.outcome is not None
    assert [name.partition("::")[2] for name in run.outcome.passed] == [
        "test_with_fixture", "test_ends[to o low]", "test_ends[too high]", "test_low", "test_high", "test_elsewhere",
    ]  # fmt: skip
    assert run.outcome.failed == ["test_toy.py::test_wrong"]
    assert run.outcome.skipped == ["test_toy.py::test_skipped", "test_toy.py::test_known"]
    assert (run.exit_code, run.outcome.executions) == (1, {})


def test_the_project_is_that_of_the_tests_and_not_of_the_working_folder(
    suite: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "rlverify", "-p", "no:cacheprovider"]
    command += ["--plant", "clip-one-sided"]
    done = subprocess.run(
        [*command, str(suite / "test_toy.py::test_low")], cwd=elsewhere, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "planted clip-one-sided: executed 1 times" in done.stdout
