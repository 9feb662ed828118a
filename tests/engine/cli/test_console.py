"""What is printed: lines of progress, and in a pipe, tables as wide as COLUMNS says."""

from __future__ import annotations

import pytest
from rich.text import Text

from rlverify.cli.app import run
from rlverify.cli.console import PLAIN_WIDTH, ProgressLine, plain_table, show
from tests.engine.project_folders import PROJECTS


def progress(times: list[float]) -> ProgressLine:
    """Lines that read the time from a list."""
    return ProgressLine(clock=lambda: times.pop(0))


def test_progress_is_a_line_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    shown = progress([0.0, 4.0, 9.9, 10.0, 10.0, 15.0, 21.0, 21.0])
    for done in range(1, 6):
        shown.probes(done, 600)
    assert capsys.readouterr() == ("", "measuring: 3 of 600 runs\nmeasuring: 5 of 600 runs\n")


def test_figures_have_lines_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    shown = progress([0.0, 9.0, 60.0, 60.0, 60.0, 61.0, 61.0])
    for done in (0, 1, 2):
        shown.figures(done, 9)
    assert capsys.readouterr() == ("", "figures: 1 of 9 runs, about 8 min left\n")


def test_without_colours_there_are_no_escape_codes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    for no_color, expected in (("", True), ("1", False)):
        monkeypatch.setenv("NO_COLOR", no_color)
        show(plain_table("claim", wrapped=[]), Text("CONFIRMED", style="bold green"))
        assert ("\x1b" in capsys.readouterr().out) == expected


@pytest.mark.parametrize(("columns", "width"), [("70", 70), *((each, PLAIN_WIDTH) for each in ("", "0", "wide"))])
def test_a_table_in_a_pipe_is_as_wide_as_columns_says(
    columns: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert run(["--project", str(PROJECTS.parents[2]), "list"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) == width
