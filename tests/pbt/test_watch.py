"""``python -m rlcore.pbt --watch``: what it reads of a population that trains, and what it shows."""

from __future__ import annotations

import io
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rlcore import CheckpointError
from rlcore.pbt import watch
from rlcore.pbt.cli import run
from rlcore.pbt.files import LINEAGE_FILE, STATE_FILE, LineageEvent, LineageFile, ancestors, locked, read_lineage
from rlcore.pbt.population import Population
from rlcore.pbt.watch import event_line, lineage
from tests.support.population_run import CONFIG, build

UPDATES = 4


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Population:
    """A population of three members that has copied and explored; its folder is read-only for tests."""
    population = build(tmp_path_factory.mktemp("trained") / "population")
    population.train(UPDATES)
    return population


@pytest.fixture
def folder(trained: Population, tmp_path: Path) -> Path:
    """A copy of its folder, somewhere else."""
    return Path(shutil.copytree(trained.folder, tmp_path / "moved"))


def console(**settings: Any) -> Console:
    given = {"file": io.StringIO(), "width": 200, "height": 60, "force_terminal": False, "color_system": None}
    return Console(**{**given, **settings})


def text_of(folder: Path) -> str:
    into = console()
    watch.watch(folder, once=True, console=into)
    return str(into.file.getvalue())  # type: ignore[attr-defined]


def rows_of(text: str) -> dict[int, list[str]]:
    """The words of the members' lines, by member."""
    lines = [line.split() for line in text.splitlines() if re.match(r" +\d+ +\d+ ", line)]
    return {int(words[1]): words for words in lines}


def test_a_row_has_all_that_the_files_say(trained: Population) -> None:
    text, events = text_of(trained.folder), read_lineage(trained.folder)
    rows = rows_of(text)
    assert list(rows) == [each.member_id for each in trained.scheduler.ranked()]
    assert any(status.exploits for status in trained.statuses())
    for rank, member in enumerate(trained.scheduler.ranked(), start=1):
        number = member.member_id
        sources = [each.member for each in ancestors(events, number)]
        expected = [str(rank), str(number), f"{member.performance:.4g}", "4"]
        expected += [*(f"{value:.3g}" for value in member.hyperparams.values())]
        assert rows[number] == [*expected, str(trained.statuses()[number].exploits), *lineage(number, sources).split()]


def test_around_the_rows_are_the_settings_and_the_last_events(trained: Population) -> None:
    text, events = text_of(trained.folder), read_lineage(trained.folder)
    assert f"population in {trained.folder}\n" in text
    assert "the largest is best; members copy after every 1 updates, next after update 4" in text
    assert [event_line(each).plain in text for each in events[-8:]] == [True] * len(events[-8:])


def test_nothing_in_the_folder_is_locked_or_changed(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with locked(folder):
        text_of(folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_it_needs_state_and_lineage_alone(trained: Population, folder: Path) -> None:
    shutil.rmtree(folder / "checkpoints")
    shutil.rmtree(folder / "members")
    assert rows_of(text_of(folder)) == rows_of(text_of(trained.folder))


def test_a_tournament_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(CONFIG, "truncation_ratio")
    build(tmp_path, exploit_method="binary_tournament", metric_mode="min").train(1)
    text = text_of(tmp_path)
    assert len(rows_of(text)) == 3
    assert "the smallest is best" in text


def test_an_event_that_is_not_committed_is_not_shown(folder: Path) -> None:
    file = LineageFile(folder / LINEAGE_FILE, (folder / LINEAGE_FILE).stat().st_size)
    file.append([LineageEvent("explore", 0, 99, None, {"sigma": 0.1}, {"sigma": 0.2})])
    assert "update 99" not in text_of(folder)


def test_a_member_without_report_has_no_score(tmp_path: Path) -> None:
    build(tmp_path).train(0)
    for words in rows_of(text_of(tmp_path)).values():
        assert (words[2:4], words[-2:]) == (["-", "0"], ["0", "-"])


@pytest.mark.parametrize(
    ("sources", "shown"),
    [([], "-"), ([1, 0, 2, 4], "3 <- 1 <- 0 <- 2 <- 4"), ([1, 0, 2, 4, 5], "3 <- 1 <- 0 <- 2 <- 4 <- ...")],
)
def test_a_long_lineage_is_cut(sources: list[int], shown: str) -> None:
    assert lineage(3, sources) == shown


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (LineageEvent("start", 0, 0, None, {"lr": 0.5}), "update 0: member 0 started with lr 0.5"),
        (
            LineageEvent("exploit", 2, 6, 1.5, {"lr": 0.2, "x": 1}, {"lr": 0.1, "x": 1}, 1, 5, "v2"),
            "update 6: member 2 copied member 1 of update 5, score 1.5: lr 0.1 -> 0.2",
        ),
        (
            LineageEvent("explore", 1, 6, None, {"lr": 0.2}, {"lr": 0.2}),
            "update 6: member 1 explored: the same hyperparameters",
        ),
    ],
)
def test_an_event_says_who_copied_whom_and_what_changed(event: LineageEvent, words: str) -> None:
    assert event_line(event).plain == words


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
            build(tmp_path).train(2)
        if pauses == 4:
            raise KeyboardInterrupt

    watch.watch(tmp_path, console=into, pause=pause)
    shown = str(into.file.getvalue())  # type: ignore[attr-defined]
    steps = [row[3] for row in map(str.split, shown.splitlines()) if row[:1] == ["1"]]
    assert set(steps) == {"1"} if is_damaged else (steps[0], steps[-1]) == ("1", "2")


@pytest.mark.parametrize("arguments", [["--once"], []])
def test_it_is_shown_once_if_there_is_no_terminal(
    arguments: list[str], trained: Population, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--watch", str(trained.folder), *arguments]) == 0
    shown, said = capsys.readouterr()
    assert said == ""
    assert list(rows_of(shown)) == [each.member_id for each in trained.scheduler.ranked()]


def test_a_folder_without_a_population_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["--watch", "empty", "--once"]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert said.err.startswith(f"error: empty: holds no population: there is no {STATE_FILE}; give the folder")


def test_a_state_that_is_damaged_is_an_error_at_first(folder: Path) -> None:
    (folder / STATE_FILE).write_bytes(b"half")
    with pytest.raises(CheckpointError):
        watch.watch(folder, once=True)
