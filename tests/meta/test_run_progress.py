"""The file that says how far a command is: what is written when, and what a reader makes of it."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from troubleproject.tasks import act

from rlverify.field.field_measuring import FieldTask
from rlverify.kill_matrix.planted_tests import label_of
from rlverify.kill_matrix.sessions import run_session
from rlverify.project.content import Project
from rlverify.records import interrupts
from rlverify.running import pool, run_progress
from rlverify.running.executor import Executor
from rlverify.running.executors import InlineExecutor, ProcessExecutor
from rlverify.running.paired_runs import PairedTask
from rlverify.running.pool import Ended, run_each
from rlverify.running.progress_file import (
    SILENT_AFTER,
    EndedTask,
    RunningTask,
    RunProgress,
    Stage,
    path_of_run,
    read_runs,
    remove_progress,
    write_progress,
)
from rlverify.running.run_progress import KEPT, ProgressWriter, progress_reported, stage_progress, task_started
from rlverify.running.runner import ProbeTask, run_claims

NO_PROCESS = 2**22 + 1
"""No process has such a number."""
RUN = RunProgress(
    "rlverify audit",
    os.getpid(),
    100.0,
    160.0,
    (Stage("measuring", 3, 9, 101.0, 200.5),),
    (RunningTask("a probe", 7, 150.0),),
    (EndedTask("another", 2.5),),
)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def writer(tmp_path: Path, clock: Clock) -> ProgressWriter:
    return ProgressWriter(tmp_path / ".rlverify", "rlverify audit", clock)


class TestFile:
    def test_what_is_written_is_read_back_and_the_folder_is_ignored_by_git(self, tmp_path: Path) -> None:
        other = replace(RUN, pid=NO_PROCESS, start=50.0)
        for run in (RUN, other):
            write_progress(tmp_path, run)
        assert read_runs(tmp_path) == [other, RUN]
        assert (tmp_path / "progress" / ".gitignore").read_text(encoding="utf-8") == "*\n"

    @pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}'])
    def test_what_is_no_progress_is_left_out(self, content: str, tmp_path: Path) -> None:
        write_progress(tmp_path, RUN)
        (tmp_path / "progress" / "9.json").write_text(content, encoding="utf-8")
        assert read_runs(tmp_path) == [RUN]

    def test_a_reader_never_sees_a_part_of_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write_progress(tmp_path, RUN)
        seen: list[list[RunProgress]] = []
        monkeypatch.setattr(Path, "replace", lambda *_: seen.append(read_runs(tmp_path)))
        write_progress(tmp_path, replace(RUN, written=170.0))
        assert seen == [[RUN]]

    def test_removing_it_leaves_nothing_but_what_others_wrote(self, tmp_path: Path) -> None:
        folder = tmp_path / ".rlverify"
        for run in (RUN, replace(RUN, pid=NO_PROCESS)):
            write_progress(folder, run)
        remove_progress(folder, RUN.pid)
        assert [each.pid for each in read_runs(folder)] == [NO_PROCESS]
        (folder / "lock").touch()
        remove_progress(folder, NO_PROCESS)
        assert [each.name for each in folder.iterdir()] == ["lock"]
        (folder / "lock").unlink()
        write_progress(folder, RUN)
        remove_progress(folder, RUN.pid)
        remove_progress(folder, RUN.pid)
        assert not folder.exists()

    def test_a_process_that_is_gone_or_silent_is_told_from_one_that_runs(self) -> None:
        assert RUN.state(RUN.written + SILENT_AFTER) == "running"
        assert RUN.state(RUN.written + SILENT_AFTER + 1) == "silent"
        assert replace(RUN, pid=NO_PROCESS).state(RUN.written) == "lost"


class TestWriter:
    def test_tasks_are_running_until_they_end(self, writer: ProgressWriter, clock: Clock) -> None:
        writer.task_started("a", 7)
        clock.now += 2
        writer.task_started("b", 8)
        clock.now += 3
        writer.task_ended("a", 7)
        writer.task_ended("unknown", 7)
        assert writer.progress() == RunProgress(
            "rlverify audit",
            os.getpid(),
            1000.0,
            1005.0,
            running=(RunningTask("b", 8, 1002.0),),
            ended=(EndedTask("a", 5.0),),
        )

    def test_the_last_tasks_that_ended_are_kept(self, writer: ProgressWriter) -> None:
        for number in range(KEPT + 2):
            writer.task_started(str(number), 7)
            writer.task_ended(str(number), 7)
        assert [each.text for each in writer.progress().ended] == [str(number) for number in range(2, KEPT + 2)]

    def test_the_end_follows_from_the_pace(self, writer: ProgressWriter, clock: Clock) -> None:
        writer.stage("measuring", 0, 6, None)
        assert writer.progress().stages == (Stage("measuring", 0, 6, 1000.0, None),)
        clock.now += 20
        writer.stage("measuring", 2, 6, None)
        assert writer.progress().stages == (Stage("measuring", 2, 6, 1000.0, 1060.0),)

    def test_a_stage_of_which_the_first_news_is_a_task_that_ended_began_before(
        self, writer: ProgressWriter, clock: Clock
    ) -> None:
        clock.now += 10
        writer.stage("measuring", 1, 3, None)
        assert writer.progress().stages == (Stage("measuring", 1, 3, 1000.0, 1030.0),)
        clock.now += 5
        writer.stage("repeating", 1, 2, None)
        assert writer.progress().stages[1] == Stage("repeating", 1, 2, 1010.0, 1020.0)

    def test_a_stage_that_begins_again_has_a_new_start(self, writer: ProgressWriter, clock: Clock) -> None:
        writer.stage("repeating", 2, 2, None)
        clock.now += 5
        writer.stage("repeating", 0, 4, None)
        assert writer.progress().stages == (Stage("repeating", 0, 4, 1005.0, None),)

    def test_the_end_is_not_put_off_while_nothing_ends(self, writer: ProgressWriter, clock: Clock) -> None:
        for _ in range(3):
            writer.stage("measuring", 1, 6, None)
            writer.stage("figures", 1, 6, 50.0)
            clock.now += 10
        assert [each.end for each in writer.progress().stages] == [1000.0, 1050.0]
        writer.stage("figures", 2, 6, 40.0)
        assert writer.progress().stages[1].end == 1070.0

    def test_what_is_known_later_of_the_end_is_taken(self, writer: ProgressWriter) -> None:
        writer.stage("figures", 0, 6, None)
        writer.stage("figures", 0, 6, 50.0)
        assert writer.progress().stages[0].end == 1050.0

    def test_it_is_written_when_something_changed_and_every_few_seconds(
        self, writer: ProgressWriter, clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        written: list[float] = []

        class Waits:
            def __init__(self) -> None:
                self.count = 0

            def wait(self, seconds: float) -> bool:
                assert seconds == 0.5
                self.count += 1
                clock.now += seconds
                if self.count == 4:
                    writer.task_started("a", 7)
                written.extend(run.written for run in read_runs(tmp_path / ".rlverify") if run.written not in written)
                return self.count == 20

        monkeypatch.setattr(writer, "_stopped", Waits())
        writer._keep_writing()
        assert written == [1000.5, 1002.0, 1007.0]

    def test_files_of_processes_that_are_gone_are_removed(self, writer: ProgressWriter, tmp_path: Path) -> None:
        folder = tmp_path / ".rlverify"
        write_progress(folder, replace(RUN, pid=NO_PROCESS))
        write_progress(folder, replace(RUN, pid=os.getppid()))
        writer.begin()
        assert {each.pid for each in read_runs(folder)} == {os.getpid(), os.getppid()}
        writer.end()
        assert {each.pid for each in read_runs(folder)} == {os.getppid()}

    def test_the_thread_takes_no_signals(self, writer: ProgressWriter, monkeypatch: pytest.MonkeyPatch) -> None:
        blocked: list[set[int]] = []
        seen = threading.Event()

        def write() -> None:
            if threading.current_thread() is not threading.main_thread():
                blocked.append({*signal.pthread_sigmask(signal.SIG_BLOCK, ())})
                seen.set()

        monkeypatch.setattr(run_progress, "PAUSE", 0.001)
        monkeypatch.setattr(writer, "write", write)
        writer.begin()
        assert seen.wait(30)
        writer.end()
        assert blocked[0] >= {*interrupts.SIGNALS}

    def test_what_is_measured_goes_on_where_no_file_can_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with progress_reported(tmp_path / "file", "rlverify audit") as writer:
            task_started("a", 7)
        assert [each.text for each in writer.progress().running] == ["a"]


class TestReporting:
    def test_the_file_is_there_while_the_block_runs_whatever_ends_it(self, tmp_path: Path) -> None:
        with pytest.raises(KeyboardInterrupt), progress_reported(tmp_path / "x", "rlverify audit"):  # noqa: PT012
            assert path_of_run(tmp_path / "x", os.getpid()).is_file()
            raise KeyboardInterrupt
        assert not (tmp_path / "x").exists()

    def test_nothing_is_reported_outside(self, tmp_path: Path) -> None:
        with progress_reported(tmp_path, "rlverify audit") as writer:
            pass
        task_started("a", 7)
        stage_progress("measuring", 1, 2)
        assert (writer.progress().running, writer.progress().stages) == ((), ())

    def test_each_task_of_the_pool_is_reported_with_its_process(self, monkeypatch: pytest.MonkeyPatch) -> None:
        events: list[tuple[str, str, int]] = []
        monkeypatch.setattr(pool, "task_started", lambda task, pid: events.append(("start", task, pid)))
        monkeypatch.setattr(pool, "task_ended", lambda task, pid: events.append(("end", task, pid)))
        results: dict[str, Ended[str]] = {}

        def note(task: str, ended: Ended[str]) -> None:
            assert events[-1][:2] != ("start", task)
            results[task] = ended

        run_each(
            act,
            ["a", "kill", "b", "c"],
            processes=1,
            note=note,
        )
        assert [each[:2] for each in events] == [(what, task) for task in results for what in ("start", "end")]
        pids = {task: pid for _, task, pid in events}
        assert all(str(ended.result).split()[1] == str(pids[task]) for task, ended in results.items() if ended.result)
        assert pids["a"] == pids["kill"] != pids["b"]

    def test_a_task_that_is_stopped_does_not_stay(self, monkeypatch: pytest.MonkeyPatch) -> None:
        events: list[tuple[str, str]] = []
        monkeypatch.setattr(pool, "task_started", lambda task, _: events.append(("start", task)))
        monkeypatch.setattr(pool, "task_ended", lambda task, _: events.append(("end", task)))

        def note(_task: str, _ended: Ended[str]) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run_each(
                act,
                ["a", "b", "c"],
                processes=2,
                note=note,
            )
        begun = {task for what, task in events if what == "start"}
        assert sorted(task for what, task in events if what == "end") == sorted(begun)

    @pytest.mark.parametrize("executor", [ProcessExecutor(1), InlineExecutor()])
    def test_runs_of_claims_are_reported_by_what_they_measure(
        self, executor: Executor, toyproject: Project, tmp_path: Path
    ) -> None:
        seen: list[RunProgress] = []
        claim = toyproject.claims[0]
        with progress_reported(tmp_path, "rlverify audit") as writer:
            run_claims(toyproject, [claim], executor=executor, on_progress=lambda *_: seen.append(writer.progress()))
        texts = {each.text for run in seen for each in (*run.running, *run.ended)}
        assert f"{claim.probe}, healthy, seed {claim.seeds[0]}" in texts
        assert seen[-1].running == ()

    def test_a_task_without_a_text_is_not_told_of(self, tmp_path: Path) -> None:
        with progress_reported(tmp_path, "rlverify audit") as writer:
            task_started(("a", 1), 7)
        assert writer.progress().running == ()

    def test_every_kind_of_task_has_a_text(self, toyproject: Project) -> None:
        assert ProbeTask(toyproject, "p", None, 3, 1.0, "documented_fix").label == "p, documented fix, seed 3"
        assert PairedTask(toyproject, "e", 4).label == "e, seed 4"
        assert FieldTask("PPO", "sb3", "awkward", "", "").label == "PPO, awkward"

    @pytest.mark.parametrize(
        ("arguments", "label"),
        [
            (["--plant", "a-fault", "tests/a.py::x", "tests/b.py::y"], "a-fault: 2 tests"),
            (["--plant", "one", "--plant", "two", "-W", "ignore", "tests/a.py::x"], "one, two: tests/a.py::x"),
            (["--plant-null", "one", "tests/a.py"], "one: tests/a.py"),
            (["tests/a.py", "tests/b.py", "tests/c.py"], "healthy code: 3 tests"),
        ],
    )
    def test_a_session_is_what_is_planted_and_tested(self, arguments: list[str], label: str) -> None:
        assert label_of(arguments) == label

    def test_a_session_of_tests_is_reported(self, tmp_path: Path) -> None:
        (tmp_path / "test_it.py").write_text("def test_it(): ...\n", encoding="utf-8")
        with progress_reported(tmp_path, "rlverify matrix") as writer:
            run_session(["-q"], root=tmp_path, environment=dict(os.environ), limit=60.0, label="a-fault: 1 test")
        assert [each.text for each in writer.progress().ended] == ["a-fault: 1 test"]
        assert writer.progress().running == ()
