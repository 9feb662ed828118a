"""Where tasks run changes nothing in their results: in this process, in worker processes or in threads."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from troubleproject.tasks import act

from rlverify.cli.app import run
from rlverify.cli.run_options import executor_of
from rlverify.project.settings import ReportPaths
from rlverify.records.errors import UsageError
from rlverify.running.executors import (
    Executor,
    InlineExecutor,
    ProcessExecutor,
    ThreadExecutor,
    in_threads,
)
from tests.engine.project_folders import write_settings, write_toy_tests

EXECUTORS = [InlineExecutor(), ProcessExecutor(2), ThreadExecutor(2)]
Command = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_results_are_in_the_order_of_the_tasks_and_each_is_noted_once(executor: Executor) -> None:
    noted: list[str] = []
    tasks = ["a", "b", "c", "d"]
    ended = executor.map(act, tasks, note=lambda task, _: noted.append(task))
    assert [str(each.result).split()[0] for each in ended] == tasks
    assert all((each.exit_code, each.reason) == (None, "") and each.seconds >= 0 for each in ended)
    assert sorted(noted) == tasks
    assert executor.map(act, []) == []


@pytest.mark.parametrize(("executor", "is_here"), [*zip(EXECUTORS, [True, False, True], strict=True)])
def test_inline_and_threads_are_in_this_process(executor: Executor, is_here: bool) -> None:
    (ended,) = executor.map(act, ["a"])
    assert (str(ended.result).split()[1] == str(os.getpid())) is is_here


def leave_a_folder(_: int) -> str:
    return tempfile.mkdtemp()


@pytest.mark.parametrize("before", [None, "elsewhere"])
def test_inline_removes_what_tasks_leave_and_restores_the_folder_for_temporary_files(
    before: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if before is None:
        monkeypatch.delenv("TMPDIR", raising=False)
    else:
        monkeypatch.setenv("TMPDIR", str(tmp_path))
    known = tempfile.tempdir
    ended = InlineExecutor().map(leave_a_folder, [1, 2])
    assert not any(Path(each.result or "").exists() for each in ended)
    assert (tempfile.tempdir, os.environ.get("TMPDIR")) == (known, None if before is None else str(tmp_path))


def test_what_a_task_prints_inline_is_no_part_of_the_answer(capfd: pytest.CaptureFixture[str]) -> None:
    InlineExecutor().map(print, ["said"])
    assert capfd.readouterr() == ("", "said\n")


def test_threads_raise_what_a_task_raises_and_start_no_other() -> None:
    started: list[int] = []

    def fail(number: int) -> None:
        started.append(number)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ThreadExecutor(1).map(fail, range(100))
    assert len(started) < 100


def test_without_ray_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "rlverify.running.ray_executor", raising=False)
    message = r"Ray is not installed, .*; run `pip install 'rlverify\[ray\]'`"
    with pytest.raises(UsageError, match=message), executor_of("ray", 2, None):
        pytest.fail("nothing may run")


def test_an_executor_is_closed_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[object] = []
    monkeypatch.setattr(ProcessExecutor, "close", lambda executor: closed.append(executor))
    with pytest.raises(KeyError), executor_of("processes", 3, None):
        raise KeyError
    assert closed == [ProcessExecutor(3)]


def test_only_worker_processes_become_threads() -> None:
    assert in_threads(ProcessExecutor(3)) == ThreadExecutor(3)
    assert in_threads(InlineExecutor()) == InlineExecutor()


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    """Runs a command on a copy of the toy project: exit code, output, errors."""
    write_toy_tests(write_settings(tmp_path, "toyproject"))

    def started(*arguments: str) -> tuple[int, str, str]:
        code = run(["--project", str(tmp_path), *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return started


def files_of(folder: Path) -> dict[str, bytes]:
    paths = ReportPaths(folder)
    found = {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }
    assert any(name.startswith(paths.evidence.name) for name in found)
    return found


@pytest.mark.slow
def test_an_audit_writes_the_same_bytes_inline_as_in_processes(command: Command, tmp_path: Path) -> None:
    for where in ("inline", "processes"):
        code, _, errors = command("audit", "--update", "--executor", where, "--reports", str(tmp_path / where))
        assert code == 0, errors
    assert files_of(tmp_path / "inline") == files_of(tmp_path / "processes")
