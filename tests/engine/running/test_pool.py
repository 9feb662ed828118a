"""Each worker process has one task at a time, so that the task of one that dies is known."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from pathlib import Path

import pytest
from troubleproject.tasks import act

from rlverify.running import executors
from rlverify.running.executors import Ended, Job, ProcessExecutor
from rlverify.running.runner import how_it_died


def _run(*tasks: str, processes: int = 1) -> list[tuple[str, Ended[str]]]:
    noted: list[tuple[str, Ended[str]]] = []
    ProcessExecutor(processes).map(act, tasks, note=lambda task, ended: noted.append((task, ended)))
    assert multiprocessing.active_children() == []
    return noted


def test_one_process_runs_one_task_after_the_other() -> None:
    noted = _run("a", "b", "c")
    assert [task for task, _ in noted] == ["a", "b", "c"]
    (process,) = {str(ended.result).split()[1] for _, ended in noted}
    assert process != str(os.getpid())


@pytest.mark.parametrize(("task", "code"), [("exit", 0), ("kill", -signal.SIGKILL), ("raise", 1)])
def test_the_task_whose_process_died_has_its_exit_code_and_the_others_go_on(task: str, code: int) -> None:
    (_, first), (died, second), (_, third) = _run("a", task, "b")
    assert (died, second.result, second.exit_code) == (task, None, code)
    assert (str(first.result)[0], str(third.result)[0]) == ("a", "b")
    assert first.result != third.result


def test_a_process_that_a_dead_worker_started_does_not_hide_its_death(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TROUBLEPROJECT_LEFT", str(tmp_path / "left"))
    ((_, ended),) = _run("fork and exit")
    assert (ended.result, ended.exit_code) == (None, 0)
    assert not (tmp_path / "left").exists()


def test_waiting_is_reported_while_a_task_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "POLL", 0.01)
    told: list[int] = []
    ProcessExecutor(1).run([Job(act, "a")], lambda done, _: told.append(done))
    assert (told[:3], told[-1]) == ([0, 0, 0], 1)


def test_what_runs_at_the_same_time_is_not_run_again() -> None:
    noted = dict(_run("kill", "a", "b", "c", "exit", "d", processes=2))
    assert {task for task, ended in noted.items() if ended.result is None} == {"kill", "exit"}
    assert len(noted) == 6


def test_a_worker_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TROUBLEPROJECT_LEFT", str(tmp_path / "left"))
    monkeypatch.setattr(executors, "GRACE", 0.1)
    ((_, ended),) = _run("leave a thread")
    assert ended.exit_code is None
    assert not (tmp_path / "left").exists()


@pytest.mark.parametrize(
    ("code", "seconds", "words"),
    [
        (0, 3.0, "exited with code 0 before the run ended"),
        (1, 3.0, "exited with code 1 before the run ended"),
        (1, 5.0, "did not end within 4 seconds"),
        (3, 5.0, "exited with code 3 before the run ended"),
        (-9, 5.0, "was killed by signal 9 (Killed)"),
    ],
)
def test_how_a_process_died_is_reported(code: int, seconds: float, words: str) -> None:
    assert how_it_died(Ended(None, code, seconds), limit=2.0) == f"the process of this run {words}"


def leave_a_folder(_: int) -> str:
    return tempfile.mkdtemp()


def test_what_tasks_leave_in_the_folder_for_temporary_files_is_removed() -> None:
    left: list[Ended[str]] = []
    ProcessExecutor(2).map(leave_a_folder, [1, 2, 3], note=lambda _, ended: left.append(ended))
    folders = [Path(each.result or "") for each in left]
    assert len({folder.parent for folder in folders}) == 1
    assert folders[0].parent != Path(tempfile.gettempdir())
    assert [folder for folder in (*folders, folders[0].parent) if folder.exists()] == []
