"""`rlverify watch` as a user meets it: what it shows of a run, where it looks for one, and how it ends."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from rlverify.cli import watch_command
from rlverify.cli.app import run
from rlverify.cli.watch_command import follow, working_folder
from rlverify.cli.watch_tables import duration, end_in_words
from rlverify.field import field_measuring
from rlverify.field.field_records import FieldReport
from rlverify.running.progress_file import (
    ELSEWHERE,
    EndedTask,
    RunningTask,
    RunProgress,
    Stage,
    read_runs,
    remove_progress,
    write_progress,
)
from rlverify.running.run_progress import ProgressWriter
from tests.meta.messages import is_one_line
from tests.meta.project_folders import write_settings, write_toy_tests
from tests.meta.test_run_progress import NO_PROCESS
from tests.report.field_example import field_example

NOW = 1_800_000_000.0
WatchCommand = Callable[..., tuple[int, str, str]]
RUN = RunProgress(
    "rlverify audit --level full",
    os.getpid(),
    NOW - 700,
    NOW - 1,
    (Stage("measuring", 600, 600, NOW - 690, NOW - 300), Stage("figures", 12, 40, NOW - 300, NOW + 1330)),
    (RunningTask("effect-of-scaling, seed 3", 4321, NOW - 63), RunningTask("noise, seed 8", 4322, NOW - 5)),
    (EndedTask("noise, seed 6", 8.2), EndedTask("noise, seed 7", 71.0)),
)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> WatchCommand:
    """Runs the command in this process at a fixed time: exit code, output, errors."""
    monkeypatch.setattr(watch_command.time, "time", lambda: NOW)

    def invoke(*arguments: str | Path) -> tuple[int, str, str]:
        code = run([*map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return invoke


def words(text: str) -> list[list[str]]:
    """The cells of each line."""
    return [re.split(r" {2,}", line.strip()) for line in text.splitlines()]


class TestView:
    @pytest.mark.parametrize("arguments", [["--once"], []])
    def test_it_shows_what_runs_where_what_is_left_and_when_it_ends(
        self, arguments: list[str], command: WatchCommand, tmp_path: Path
    ) -> None:
        write_progress(tmp_path / ".rlverify", RUN)
        code, output, errors = command("watch", tmp_path, *arguments)
        assert (code, errors) == (0, "")
        lines = words(output)
        assert lines[0] == [RUN.command, f"(process {os.getpid()}, running for 11 min 40 s)"]
        assert ["measuring", "600 of 600", "0", "-"] in lines
        (figures,) = [line for line in lines if line[0] == "figures"]
        assert figures[:3] == ["figures", "12 of 40", "28"]
        assert re.fullmatch(r"about \d\d:\d\d, in 22 min 10 s", figures[3])
        assert ["4321", "1 min 3 s", "effect-of-scaling, seed 3"] in lines
        assert ["4322", "5 s", "noise, seed 8"] in lines
        assert lines[-1] == ["ended last: noise, seed 7 (1 min 11 s), noise, seed 6 (8 s)"]

    def test_a_run_whose_process_is_gone_is_not_shown_as_running(self, command: WatchCommand, tmp_path: Path) -> None:
        write_progress(tmp_path / ".rlverify", replace(RUN, pid=NO_PROCESS))
        code, output, _ = command("watch", tmp_path)
        assert code == 0
        assert "ended without a result: its process is gone" in " ".join(output.split())
        assert "4321" not in output
        assert " in 22 min" not in output

    def test_a_run_that_writes_nothing_new_is_called_silent(self, command: WatchCommand, tmp_path: Path) -> None:
        write_progress(tmp_path / ".rlverify", replace(RUN, written=NOW - 100))
        _, output, _ = command("watch", tmp_path)
        assert "silent for 1 min 40 s: its process is stopped" in " ".join(output.split())

    def test_runs_that_are_under_way_together_are_all_shown(self, command: WatchCommand, tmp_path: Path) -> None:
        for run_, name in ((RUN, "audit"), (replace(RUN, pid=os.getppid(), start=NOW - 9), "matrix")):
            write_progress(tmp_path / ".rlverify", replace(run_, command=f"rlverify {name}"))
        _, output, _ = command("watch", tmp_path)
        assert [line[0] for line in words(output) if line[0].startswith("rlverify")] == [
            "rlverify audit",
            "rlverify matrix",
        ]

    def test_a_task_of_another_machine_runs_elsewhere(self, command: WatchCommand, tmp_path: Path) -> None:
        write_progress(tmp_path / ".rlverify", replace(RUN, running=(RunningTask("noise", ELSEWHERE, NOW - 5),)))
        _, output, _ = command("watch", tmp_path)
        assert ["elsewhere", "5 s", "noise"] in words(output)

    def test_json_has_all_of_it(self, command: WatchCommand, tmp_path: Path) -> None:
        write_progress(tmp_path / ".rlverify", RUN)
        code, output, _ = command("watch", tmp_path, "--json")
        (found,) = json.loads(output)["runs"]
        assert code == 0
        assert found["state"] == "running"
        assert found["stages"][1] == {
            "name": "figures",
            "done": 12,
            "total": 40,
            "start": NOW - 300,
            "end": NOW + 1330,
        }
        assert found["running"][1] == {"text": "noise, seed 8", "pid": 4322, "start": NOW - 5}

    @pytest.mark.parametrize(
        ("stage", "expected"),
        [
            (Stage("x", 3, 3, NOW, NOW), "done"),
            (Stage("x", 0, 3, NOW, None), "unknown until a task has ended"),
            (Stage("x", 1, 3, NOW, NOW - 5), "later than expected"),
        ],
    )
    def test_an_end_that_is_unknown_or_overdue_is_said(self, stage: Stage, expected: str) -> None:
        assert end_in_words(stage, NOW) == expected

    @pytest.mark.parametrize(
        ("seconds", "expected"),
        [
            (-3, "0 s"),
            (59.4, "59 s"),
            (60, "1 min 0 s"),
            (3599.4, "59 min 59 s"),
            (3600, "1 h 0 min"),
            (9000, "2 h 30 min"),
        ],
    )
    def test_durations_are_readable(self, seconds: float, expected: str) -> None:
        assert duration(seconds) == expected


class TestPlaces:
    def test_the_project_around_a_folder_is_looked_at(self, command: WatchCommand, tmp_path: Path) -> None:
        write_settings(tmp_path, "toyproject")
        below = tmp_path / "one" / "two"
        below.mkdir(parents=True)
        write_progress(tmp_path / ".rlverify", RUN)
        assert command("watch", below)[0] == 0
        assert command("--project", below, "watch")[0] == 0
        assert working_folder(below) == tmp_path / ".rlverify"

    def test_what_runs_outside_of_a_project_is_found_where_it_was_started(
        self, command: WatchCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_progress(tmp_path / ".rlverify", RUN)
        monkeypatch.chdir(tmp_path)
        assert command("watch")[0] == 0

    @pytest.mark.parametrize("name", [".", "nothing"])
    def test_a_folder_without_a_run_is_an_error(self, name: str, command: WatchCommand, tmp_path: Path) -> None:
        code, output, errors = command("watch", tmp_path / name)
        assert (code, output) == (2, "")
        assert is_one_line(errors)
        assert f"{tmp_path / name}: no command is measuring here" in errors


class TestLive:
    def test_it_ends_with_the_command_that_it_shows(self, tmp_path: Path) -> None:
        write_progress(tmp_path, RUN)
        console = Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)
        pauses: list[float] = []

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 1:
                write_progress(tmp_path, replace(RUN, running=(RunningTask("the last one", 4321, NOW),)))
            else:
                remove_progress(tmp_path, RUN.pid)

        follow(tmp_path, read_runs(tmp_path), console, pause)
        shown = console.file.getvalue()  # type: ignore[attr-defined]
        assert pauses == [1.0, 1.0]
        assert (
            shown.index("noise, seed 8") < shown.index("the last one") < shown.index(f"{RUN.command} has ended after")
        )

    def test_it_ends_where_the_command_ended_just_now(self, tmp_path: Path) -> None:
        console = Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)
        follow(tmp_path, [RUN], console, lambda _: None)
        assert f"{RUN.command} has ended after" in console.file.getvalue()  # type: ignore[attr-defined]

    def test_it_ends_where_the_process_is_gone(self, tmp_path: Path) -> None:
        write_progress(tmp_path, replace(RUN, pid=NO_PROCESS))
        console = Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)
        follow(tmp_path, read_runs(tmp_path), console, lambda _: pytest.fail("there is nothing to wait for"))
        assert "ended without a result" in console.file.getvalue()  # type: ignore[attr-defined]

    def test_ctrl_c_ends_it_without_a_word(
        self, command: WatchCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Terminal(Console):
            is_terminal = True

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        write_progress(tmp_path / ".rlverify", RUN)
        monkeypatch.setattr(watch_command, "Console", Terminal)
        monkeypatch.setattr(watch_command, "follow", interrupted)
        assert command("watch", tmp_path) == (0, "", "")


class TestWhatIsReported:
    """That commands write the file; it is looked at when they remove it."""

    @pytest.fixture
    def last(self, monkeypatch: pytest.MonkeyPatch) -> list[RunProgress]:
        found: list[RunProgress] = []
        end = ProgressWriter.end

        def recorded(self: ProgressWriter) -> None:
            self.write()
            found.extend(read_runs(self._folder))
            end(self)

        monkeypatch.setattr(ProgressWriter, "end", recorded)
        return found

    def test_an_audit_is_reported(
        self, command: WatchCommand, last: list[RunProgress], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "argv", ["/bin/rlverify", "audit", "--jobs", "1"])
        folder = write_toy_tests(write_settings(tmp_path, "toyproject"))
        command("--project", folder, "audit", "--jobs", "1")
        (run_,) = last
        assert (run_.command, run_.pid) == ("rlverify audit --jobs 1", os.getpid())
        (stage,) = run_.stages
        assert stage.name == "measuring"
        assert stage.done == stage.total > 0
        assert run_.running == ()
        assert run_.ended != ()
        assert read_runs(folder / ".rlverify") == []

    def test_a_field_report_is_reported_where_it_was_started(
        self, command: WatchCommand, last: list[RunProgress], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def measure(*_: object, on_done: Callable[..., None], **_more: object) -> FieldReport:
            task = field_measuring.optimizer_tasks(["Adam"])[0]
            on_done(task, 1.0)
            return field_example()

        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(field_measuring, "measure", measure)
        assert command("field-report", "Adam", "SGD", "--output", "out")[0] == 0
        (run_,) = last
        assert [(each.name, each.done, each.total) for each in run_.stages] == [("checks", 1, 2)]
        assert [each.name for each in tmp_path.iterdir()] == ["out"]
