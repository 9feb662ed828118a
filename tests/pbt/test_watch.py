"""``python -m rlcore.pbt --watch``: what it reads of a population that trains, and what it shows."""

from __future__ import annotations

import io
import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from rlcore import CheckpointError
from rlcore.checkpoint import load_container, save_container
from rlcore.pbt import watch
from rlcore.pbt.cli import run
from rlcore.pbt.files import LINEAGE_FILE, STATE_FILE, LineageEvent, LineageFile, ancestors, locked, read_lineage
from rlcore.pbt.population import Population
from rlcore.pbt.watch import Seen, change, divergence, event_line, lineage, trend_of
from tests.support.population_run import CONFIG, build

UPDATES = 4
NAN = math.nan


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


def text_of(folder: Path, **settings: Any) -> str:
    into, seen = console(**settings), Seen(folder)
    into.print(seen.view(into, seen.changed + 5))
    return str(into.file.getvalue())  # type: ignore[attr-defined]


def rows_of(text: str) -> dict[int, list[str]]:
    """The words of the members' lines in the first table, by member."""
    lines = [line.split() for line in text.splitlines() if re.match(r" +\d+ +\d+ ", line)]
    return {int(words[1]): words for words in lines}


class TestOnePopulation:
    def test_a_row_has_all_that_the_files_say(self, trained: Population) -> None:
        text, events = text_of(trained.folder), read_lineage(trained.folder)
        rows = rows_of(text)
        assert list(rows) == [each.member_id for each in trained.scheduler.ranked()]
        assert any(status.exploits for status in trained.statuses())
        for rank, member in enumerate(trained.scheduler.ranked(), start=1):
            scores = [each["performance"] for each in member.history[-2:]]
            number = member.member_id
            own = [each for each in events if each.member == number and each.event != "start"]
            values = []
            for name, value in member.hyperparams.items():
                values.append(f"{value:.3g}")
                before = (own[-1].hyperparams_before or {})[name] if own else value
                values += [f"x{value / before:.3g}"] if before != value else []  # type: ignore[operator]
            sources = [each.member for each in ancestors(events, number)]
            expected = [str(rank), str(number), f"{member.performance:.4g}", f"{scores[1] - scores[0]:+.4g}", "4"]
            expected += [*values, str(trained.statuses()[number].exploits)]
            assert rows[number] == [*expected, *lineage(number, sources).split(), "no"]

    def test_around_the_rows_are_the_settings_events_and_figures(self, trained: Population) -> None:
        text = text_of(trained.folder)
        assert f"population in {trained.folder}, last change 5 s ago" in text
        words = (
            "score: rollout/ep_rew_mean, the largest is best; members copy after every 1 updates, next after update 4"
        )
        assert words in text
        for event in read_lineage(trained.folder)[-8:]:
            assert event_line(event).plain in text
        mean = trained.scheduler.get_stats()["pbt/mean_performance"]
        assert f"pbt/: population_size 3, ready_members 3, mean_performance {mean:.3g}, " in text

    @pytest.mark.parametrize(("height", "shown"), [(60, 8), (20, 3), (10, 0)])
    def test_as_many_events_as_fit_are_shown_and_the_latest_of_them(
        self, height: int, shown: int, folder: Path
    ) -> None:
        lines = [json.dumps({"event": "start", "member": number, "step": 0, "hyperparams": {}}) for number in range(20)]
        content = "".join(f"{line}\n" for line in lines).encode()
        set_state(folder, lineage_size=len(content))
        (folder / LINEAGE_FILE).write_bytes(content)
        text = text_of(folder, force_terminal=True, height=height)
        assert [int(each) for each in re.findall(r"member (\d+) started", text)] == list(range(20 - shown, 20))

    def test_nothing_in_the_folder_is_locked_or_changed(self, folder: Path) -> None:
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        with locked(folder):
            text_of(folder)
        assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before

    def test_it_needs_state_and_lineage_alone(self, trained: Population, folder: Path) -> None:
        shutil.rmtree(folder / "checkpoints")
        shutil.rmtree(folder / "members")
        assert rows_of(text_of(folder)) == rows_of(text_of(trained.folder))

    def test_a_tournament_can_be_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delitem(CONFIG, "truncation_ratio")
        build(tmp_path, exploit_method="binary_tournament", metric_mode="min").train(1)
        text = text_of(tmp_path)
        assert len(rows_of(text)) == 3
        assert "the smallest is best" in text

    def test_an_event_that_is_not_committed_is_not_shown(self, folder: Path) -> None:
        file = LineageFile(folder / LINEAGE_FILE, (folder / LINEAGE_FILE).stat().st_size)
        file.append([LineageEvent("explore", 0, 99, None, {"sigma": 0.1}, {"sigma": 0.2})])
        assert "update 99" not in text_of(folder)

    def test_a_member_without_report_has_no_figures(self, tmp_path: Path) -> None:
        build(tmp_path).train(0)
        for words in rows_of(text_of(tmp_path)).values():
            assert words[2:5] == ["-", "-", "0"]
            assert words[-3:] == ["0", "-", "-"]


def set_state(folder: Path, **fields: Any) -> None:
    """Change fields of a population's state."""
    content: Any = load_container(folder / STATE_FILE)
    state = {**json.loads(bytes(content["state"].tolist())), **fields}
    content["state"] = torch.frombuffer(bytearray(json.dumps(state).encode()), dtype=torch.uint8)
    save_container(folder / STATE_FILE, content)


def reports(*scores: float) -> list[dict[str, Any]]:
    return [{"step": 2 * number, "performance": score} for number, score in enumerate(scores, start=1)]


@pytest.mark.parametrize(
    ("scores", "copies", "expected"),
    [
        ([1.0, 2.0], [], "no"),
        ([NAN], [], "no score since 2"),
        ([NAN, NAN], [], "no score since 2"),
        ([1.0, NAN, NAN], [], "since 4"),
        ([1.0, NAN], [2], "no score since 4"),
        ([1.0, 2.0, NAN], [2], "since 6"),
        ([1.0, NAN], [4], "since 4, copied 7"),
        ([NAN, 1.0], [], "no"),
        ([math.inf], [], "no"),
    ],
)
def test_a_member_has_diverged_if_its_weights_had_a_score(
    scores: list[float], copies: list[int], expected: str
) -> None:
    assert divergence(reports(*scores), copies, [7, 1]).plain == expected


@pytest.mark.parametrize(
    ("scores", "expected"),
    [([], None), ([1.0], None), ([5.0, 1.0, 3.0], 2.0), ([1.0, NAN], None), ([NAN, 1.0], None), ([-math.inf, 1], None)],
)
def test_the_trend_is_the_difference_of_the_last_two_scores(scores: list[float], expected: float | None) -> None:
    assert trend_of(reports(*scores)) == expected


@pytest.mark.parametrize(
    ("before", "value", "shown"),
    [
        (0.01, 0.02, "x2"),
        (4, 5, "x1.25"),
        (None, "relu", "was -"),
        ("tanh", "relu", "was tanh"),
        (0.0, 0.5, "was 0"),
        (False, True, "was False"),
    ],
)
def test_a_hyperparameter_has_its_change(before: Any, value: Any, shown: str) -> None:
    assert change(before, value) == shown


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


class TestCommand:
    @pytest.mark.parametrize("is_damaged", [False, True])
    def test_it_shows_again_what_has_changed_and_ends_with_ctrl_c(self, is_damaged: bool, tmp_path: Path) -> None:
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
        rows = [line.split() for line in shown.splitlines()]
        steps = [row[4] for row in rows if row[:1] == ["1"]]
        assert steps == ["1"] * 5 if is_damaged else ["1", "1", "2", "2", "2"], "one for each look, and what remains"

    @pytest.mark.parametrize("arguments", [["--once"], []])
    def test_it_shows_it_once_if_there_is_no_terminal(
        self, arguments: list[str], trained: Population, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(["--watch", str(trained.folder), *arguments]) == 0
        shown, said = capsys.readouterr()
        assert said == ""
        assert list(rows_of(shown)) == [each.member_id for each in trained.scheduler.ranked()]
        assert "exploitation_count" in shown

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["--watch", "empty", "--once"], f"empty: holds no population: there is no {STATE_FILE}; give the folder"),
            (["--watch", "--once"], "--watch needs a folder, and --once is an option; write --watch DIR"),
            (["--once", "--env", "CartPole-v1", "--folder", "new"], "--once shows a population once, and there is no"),
        ],
    )
    def test_options_that_cannot_be_used_are_one_line(
        self,
        arguments: list[str],
        words: str,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert run(arguments) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.startswith(f"error: {words}")
        assert said.err.count("\n") == 1
        assert list(tmp_path.iterdir()) == []

    def test_a_state_that_is_damaged_is_an_error_at_first(self, folder: Path) -> None:
        (folder / STATE_FILE).write_bytes(b"half")
        with pytest.raises(CheckpointError):
            watch.watch(folder, once=True)
