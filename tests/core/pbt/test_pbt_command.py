"""``python -m rlcore.pbt``: what it shows of a population, once or while it changes, and how it fails."""

from __future__ import annotations

import io
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from rlcore import LineageEvent, Population, ancestors, read_lineage
from rlcore.checkpoint.container import locked
from rlcore.pbt.__main__ import app, watch
from rlcore.pbt.population import LINEAGE_FILE, STATE_FILE, append_lineage
from tests.support.population_run import build


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Population:
    """A population of three members that has copied and explored; its folder is read-only for tests."""
    population = build(tmp_path_factory.mktemp("trained") / "population")
    population.train(4)
    return population


def text_of(folder: Path, **options: Any) -> str:
    """What is shown, by default once and without a terminal."""
    given = {"once": True, **options}
    console = Console(file=io.StringIO(), width=200, height=60, force_terminal=not given["once"], color_system=None)
    watch(folder, console=console, **given)
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def rows_of(text: str) -> dict[int, list[str]]:
    """The words of the members' lines, by member."""
    lines = [line.split() for line in text.splitlines() if re.match(r" +\d+ +\d+ ", line)]
    return {int(words[1]): words for words in lines}


def test_it_shows_all_that_state_and_lineage_say_and_needs_no_other_file(trained: Population, tmp_path: Path) -> None:
    folder = tmp_path / "moved"
    folder.mkdir()
    for name in (STATE_FILE, LINEAGE_FILE):
        shutil.copy(trained.folder / name, folder)
    lineage = folder / LINEAGE_FILE
    events = read_lineage(folder)
    # A process that was killed leaves an event that is not committed.
    append_lineage(lineage, lineage.stat().st_size, [LineageEvent("exploit", 0, 99, 1, {}, {}, 2, 99)])
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with locked(folder / "lock"):
        text = text_of(folder)
    assert {path: path.read_bytes() for path in folder.iterdir() if path.name != "lock"} == before
    rows, ranked = rows_of(text), trained.scheduler.ranked()
    assert list(rows) == [each.member_id for each in ranked]
    assert any(member.exploits for member in ranked)
    for rank, member in enumerate(ranked, start=1):
        expected = [str(rank), str(member.member_id), f"{member.performance:.3g}", "4"]
        expected += [f"{value:.3g}" for value in member.hyperparams.values()]
        sources = " <- ".join(str(source) for source, _ in ancestors(events, member.member_id)) or "-"
        assert rows[member.member_id] == [*expected, str(member.exploits), *sources.split()]
    assert f"population in {folder}\n" in text
    assert "the largest is best; members copy after every 1 updates, next after update 4" in text


@pytest.mark.parametrize("is_damaged", [False, True])
def test_it_shows_again_what_has_changed_and_ends_with_ctrl_c(is_damaged: bool, tmp_path: Path) -> None:
    population, pauses = build(tmp_path, metric_mode="min"), 0
    population.train(1)

    def pause(_: float) -> None:
        nonlocal pauses
        pauses += 1
        if pauses == 2 and is_damaged:
            (tmp_path / STATE_FILE).write_bytes(b"half")
        elif pauses == 2:
            population.train(2)
        if pauses == 4:
            raise KeyboardInterrupt

    shown = text_of(tmp_path, once=False, pause=pause)
    steps = [row[3] for row in map(str.split, shown.splitlines()) if row[:1] == ["1"]]
    assert set(steps) == {"1"} if is_damaged else (steps[0], steps[-1]) == ("1", "2")
    assert "the smallest is best" in shown


def test_the_command_shows_it_once_without_a_terminal_or_says_why_not(trained: Population, tmp_path: Path) -> None:
    for arguments in (["--once"], []):
        shown = CliRunner().invoke(app, [str(trained.folder), *arguments])
        assert (shown.exit_code, shown.stderr) == (0, "")
        assert list(rows_of(shown.stdout)) == [each.member_id for each in trained.scheduler.ranked()]
    for words in ("holds no population", "is damaged"):
        refused = CliRunner().invoke(app, [str(tmp_path), "--once"])
        assert (refused.exit_code, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
        assert refused.stderr.startswith(f"error: {tmp_path}")
        assert words in refused.stderr
        (tmp_path / STATE_FILE).write_bytes(b"half")
