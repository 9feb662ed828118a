"""``python -m rlcore.pbt --watch``: what it reads of a population that trains, and what it shows."""

from __future__ import annotations

import io
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rlcore.pbt.__main__ import event_line, run, watch
from rlcore.pbt.population import (
    LINEAGE_FILE,
    STATE_FILE,
    LineageEvent,
    Population,
    ancestors,
    append_lineage,
    locked,
    read_lineage,
)
from tests.support.population_run import build


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Population:
    """A population of three members that has copied and explored; its folder is read-only for tests."""
    population = build(tmp_path_factory.mktemp("trained") / "population")
    population.train(4)
    return population


def console(**settings: Any) -> Console:
    given = {"file": io.StringIO(), "width": 200, "height": 60, "force_terminal": False, "color_system": None}
    return Console(**{**given, **settings})


def text_of(folder: Path) -> str:
    into = console()
    watch(folder, once=True, console=into)
    return str(into.file.getvalue())  # type: ignore[attr-defined]


def rows_of(text: str) -> dict[int, list[str]]:
    """The words of the members' lines, by member."""
    lines = [line.split() for line in text.splitlines() if re.match(r" +\d+ +\d+ ", line)]
    return {int(words[1]): words for words in lines}


def test_it_shows_all_that_state_and_lineage_say_and_needs_no_other_file(trained: Population, tmp_path: Path) -> None:
    folder = tmp_path / "moved"
    folder.mkdir()
    for name in (STATE_FILE, LINEAGE_FILE):
        shutil.copy(trained.folder / name, folder)
    events = read_lineage(folder)
    # A process that was killed leaves an event that is not committed.
    append_lineage(
        folder / LINEAGE_FILE, (folder / LINEAGE_FILE).stat().st_size, [LineageEvent("explore", 0, 99, 1, {})]
    )
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with locked(folder):
        text = text_of(folder)
    assert {path: path.read_bytes() for path in folder.iterdir() if path.name != "lock"} == before
    rows = rows_of(text)
    assert list(rows) == [each.member_id for each in trained.scheduler.ranked()]
    assert any(status.exploits for status in trained.scheduler.population)
    for rank, member in enumerate(trained.scheduler.ranked(), start=1):
        number = member.member_id
        expected = [str(rank), str(number), f"{member.performance:.4g}", "4"]
        expected += [*(f"{value:.3g}" for value in member.hyperparams.values())]
        sources = " <- ".join(str(source) for source, _ in ancestors(events, number)) or "-"
        assert rows[number] == [*expected, str(trained.scheduler.population[number].exploits), *sources.split()]
    assert f"population in {folder}\n" in text
    assert "the largest is best; members copy after every 1 updates, next after update 4" in text
    assert [event_line(each).plain in text for each in events[-8:]] == [True] * len(events[-8:])
    assert "update 99" not in text


def test_a_member_without_report_has_no_score(tmp_path: Path) -> None:
    build(tmp_path, metric_mode="min").train(0)
    text = text_of(tmp_path)
    assert "the smallest is best" in text
    assert [(*words[2:4], *words[-2:]) for words in rows_of(text).values()] == [("-", "0", "0", "-")] * 3


def test_an_event_says_who_copied_whom_and_what_changed() -> None:
    start = LineageEvent("start", 0, 0, None, {"lr": 0.5})
    copied = LineageEvent("exploit", 2, 6, 1.5, {"lr": 0.2, "x": 1}, {"lr": 0.1, "x": 1}, 1, 5, "v2")
    explored = LineageEvent("explore", 1, 6, None, {"lr": 0.3}, {"lr": 0.2})
    assert [event_line(each).plain for each in (start, copied, explored)] == [
        "update 0: member 0 start: lr - -> 0.5",
        "update 6: member 2 copied member 1 of update 5, score 1.5: lr 0.1 -> 0.2",
        "update 6: member 1 explore: lr 0.2 -> 0.3",
    ]


@pytest.mark.parametrize("is_damaged", [False, True])
def test_it_shows_again_what_has_changed_and_ends_with_ctrl_c(is_damaged: bool, tmp_path: Path) -> None:
    population, pauses = build(tmp_path), 0
    population.train(1)
    into = console(force_terminal=True)

    def pause(seconds: float) -> None:
        nonlocal pauses
        assert 1 <= seconds <= 2
        pauses += 1
        if pauses == 2 and is_damaged:
            (tmp_path / STATE_FILE).write_bytes(b"half")
        elif pauses == 2:
            population.train(2)
        if pauses == 4:
            raise KeyboardInterrupt

    watch(tmp_path, console=into, pause=pause)
    shown = str(into.file.getvalue())  # type: ignore[attr-defined]
    steps = [row[3] for row in map(str.split, shown.splitlines()) if row[:1] == ["1"]]
    assert set(steps) == {"1"} if is_damaged else (steps[0], steps[-1]) == ("1", "2")


def test_the_command_shows_it_once_without_a_terminal(trained: Population, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--once"], []):
        assert run(["--watch", str(trained.folder), *arguments]) == 0
        shown, said = capsys.readouterr()
        assert said == ""
        assert list(rows_of(shown)) == [each.member_id for each in trained.scheduler.ranked()]


@pytest.mark.parametrize(("content", "words"), [(None, "holds no population: there is no"), (b"half", "")])
def test_a_folder_without_a_population_or_with_a_damaged_one_is_one_line(
    content: bytes | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / STATE_FILE).write_bytes(content)
    assert run(["--watch", str(tmp_path), "--once"]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert said.err.startswith(f"error: {tmp_path}")
    assert words in said.err
