"""``python -m rlcore.pbt --watch``: what it reads of a population that trains, and what it shows."""

from __future__ import annotations

import io
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rlcore import CheckpointError
from rlcore.pbt import watch_view
from rlcore.pbt.cli import run
from rlcore.pbt.files import LINEAGE_FILE, STATE_FILE, LineageEvent, LineageFile, ancestors, locked, read_lineage
from rlcore.pbt.population import Population
from rlcore.pbt.watching import (
    GradientScale,
    PopulationFiles,
    Unscored,
    WatchedMember,
    WatchedPopulation,
    gradient_scale,
    trend_of,
    unscored,
)
from tests.support.population_run import CONFIG, build
from tests.support.steps import tiny

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


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def console(**settings: Any) -> Console:
    given = {"file": io.StringIO(), "width": 200, "height": 60, "force_terminal": False, "color_system": None}
    return Console(**{**given, **settings})


def text_of(seen: WatchedPopulation, **settings: Any) -> str:
    into = console(**settings)
    into.print(watch_view.view(seen, into, seen.changed + 5))
    return str(into.file.getvalue())  # type: ignore[attr-defined]


def row_of(text: str, member: int) -> list[str]:
    """The words of a member's line in the first table."""
    (found,) = [line.split() for line in text.splitlines() if re.match(rf" +\d+ +{member} ", line)]
    return found


class TestReading:
    def test_members_are_those_of_the_population_the_best_first(self, trained: Population) -> None:
        seen = PopulationFiles(trained.folder).look()
        ranked = trained.scheduler.ranked()
        statuses = {each.member_id: each for each in trained.statuses()}
        assert [each.member for each in seen.members] == [each.member_id for each in ranked]
        assert [each.rank for each in seen.members] == [1, 2, 3]
        for found, member in zip(seen.members, ranked, strict=True):
            assert (found.score, found.step, found.hyperparams) == (member.performance, UPDATES, member.hyperparams)
            assert found.exploits == statuses[found.member].exploits
            assert found.trend == pytest.approx(member.history[-1]["performance"] - member.history[-2]["performance"])
            assert found.unscored is None

    def test_lineage_and_changes_are_those_of_the_events(self, trained: Population) -> None:
        events = read_lineage(trained.folder)
        seen = PopulationFiles(trained.folder).look()
        assert list(seen.events) == events
        assert any(each.exploits for each in seen.members)
        for found in seen.members:
            own = [each for each in events if each.member == found.member and each.event != "start"]
            copies = [each.step for each in own if each.event == "exploit"]
            assert found.before == (own[-1].hyperparams_before if own else None)
            assert found.sources == tuple(each.member for each in ancestors(events, found.member))
            assert found.copied_at == (copies[-1] if copies else None)

    def test_the_gradient_scale_is_the_factor_of_the_next_step(self, trained: Population) -> None:
        for found in PopulationFiles(trained.folder).look().members:
            scaler = trained.models[found.member].variance_gradient_scaler
            assert scaler is not None
            assert found.scale == GradientScale(UPDATES, scaler.get_scaling_factor(), warming_up=False)
            assert found.scale.factor is not None
            assert 0 < found.scale.factor < 1

    def test_figures_and_settings_are_those_of_the_scheduler(self, trained: Population) -> None:
        seen = PopulationFiles(trained.folder).look()
        assert seen.figures == trained.scheduler.get_stats()
        assert (seen.metric, seen.mode, seen.interval) == ("rollout/ep_rew_mean", "max", 1)
        assert seen.next_exploits == UPDATES
        assert seen.changed == (trained.folder / STATE_FILE).stat().st_mtime

    def test_a_population_that_trains_is_read_after_every_turn(self, tmp_path: Path) -> None:
        population, files = build(tmp_path), PopulationFiles(tmp_path)
        steps: list[list[int]] = []

        def look(_: object) -> None:
            found = {each.member: each.step for each in files.look().members}
            steps.append([found[number] for number in range(3)])
            assert not files.has_changed()

        population.train(1, look)
        assert steps == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]

    def test_nothing_in_the_folder_is_locked_or_changed(self, folder: Path) -> None:
        before = contents(folder)
        files = PopulationFiles(folder)
        with locked(folder):
            files.look()
        with locked(folder):
            pass
        assert contents(folder) == before

    def test_a_folder_that_was_moved_has_its_own_checkpoints(self, trained: Population, folder: Path) -> None:
        shutil.rmtree(folder / "checkpoints")
        (folder / "checkpoints").mkdir()
        for path in (trained.folder / "checkpoints").iterdir():
            shutil.copy(next((trained.folder / "checkpoints").glob("member_0_*")), folder / "checkpoints" / path.name)
        factors = {each.scale.factor for each in PopulationFiles(folder).look().members if each.scale is not None}
        assert len(factors) == 1, "the checkpoints are those of one member in this folder alone"

    def test_checkpoints_elsewhere_are_found(self, tmp_path: Path) -> None:
        build(tmp_path / "population", checkpoint_dir=tmp_path / "elsewhere").train(1)
        seen = PopulationFiles(tmp_path / "population").look()
        assert [each.scale is not None for each in seen.members] == [True] * 3

    def test_a_tournament_can_be_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delitem(CONFIG, "truncation_ratio")
        build(tmp_path, exploit_method="binary_tournament").train(1)
        assert len(PopulationFiles(tmp_path).look().members) == 3


class TestWhatCannotBeReadNow:
    def test_a_state_that_is_damaged_or_gone_leaves_the_last_one(self, folder: Path) -> None:
        files = PopulationFiles(folder)
        seen = files.look()
        state = (folder / STATE_FILE).read_bytes()
        (folder / STATE_FILE).write_bytes(state[: len(state) // 2])
        assert files.has_changed()
        assert files.look().members == seen.members
        (folder / STATE_FILE).unlink()
        assert not files.has_changed()
        assert files.look().members == seen.members

    def test_a_checkpoint_that_was_pruned_leaves_the_last_scale_or_none(self, folder: Path) -> None:
        files = PopulationFiles(folder)
        before = [each.scale for each in files.look().members]
        shutil.rmtree(folder / "checkpoints")
        assert [each.scale for each in files.look().members] == before

    def test_a_member_without_readable_checkpoint_has_no_scale(self, folder: Path) -> None:
        for path in (folder / "checkpoints").iterdir():
            path.write_bytes(b"no checkpoint")
        seen = PopulationFiles(folder).look()
        assert [each.scale for each in seen.members] == [None] * 3
        assert row_of(text_of(seen), 0)[-2:] == ["-", "no"]

    def test_an_event_that_is_not_committed_is_not_shown(self, folder: Path) -> None:
        events = read_lineage(folder)
        file = LineageFile(folder / LINEAGE_FILE, (folder / LINEAGE_FILE).stat().st_size)
        file.append([LineageEvent("explore", 0, 99, None, {"sigma": 0.1}, {"sigma": 0.2})])
        assert list(PopulationFiles(folder).look().events) == events

    def test_a_lineage_that_is_gone_leaves_the_last_events(self, folder: Path) -> None:
        files = PopulationFiles(folder)
        events = files.look().events
        (folder / LINEAGE_FILE).unlink()
        assert files.look().events == events

    @pytest.mark.parametrize("name", ["nothing", "empty"])
    def test_a_folder_without_population_is_an_error(
        self, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "empty").mkdir()
        with pytest.raises(CheckpointError, match="holds no population"):
            PopulationFiles(tmp_path / name).look()
        assert run(["--watch", str(tmp_path / name), "--once"]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err == (
            f"error: {tmp_path / name}: holds no population: there is no {STATE_FILE}; give the folder of one\n"
        )

    @pytest.mark.parametrize("url", ["s3://bucket/population", "file:///population"])
    def test_a_url_is_refused(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["--watch", url, "--once"]) == 2
        assert capsys.readouterr().err == (
            f"error: --watch {url} is a URL, and only folders of this machine can be watched\n"
        )

    def test_an_option_is_no_folder(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["--watch", "--once"]) == 2
        assert capsys.readouterr().err == "error: --watch needs a folder, and --once is an option; write --watch DIR\n"


NAN = math.nan


def reports(*scores: float) -> list[dict[str, Any]]:
    return [{"step": 2 * number, "performance": score} for number, score in enumerate(scores, start=1)]


@pytest.mark.parametrize(
    ("scores", "copies", "expected"),
    [
        ([1.0, 2.0], [], None),
        ([], [], None),
        ([NAN], [], Unscored(2, diverged=False)),
        ([NAN, NAN], [], Unscored(2, diverged=False)),
        ([1.0, NAN, NAN], [], Unscored(4, diverged=True)),
        ([1.0, NAN], [2], Unscored(4, diverged=False)),
        ([1.0, 2.0, NAN], [2], Unscored(6, diverged=True)),
        ([1.0, NAN], [4], Unscored(4, diverged=True)),
        ([NAN, 1.0], [], None),
        ([math.inf], [], None),
    ],
)
def test_a_member_has_diverged_if_its_weights_had_a_score(
    scores: list[float], copies: list[int], expected: Unscored | None
) -> None:
    assert unscored(reports(*scores), copies) == expected


@pytest.mark.parametrize(
    ("scores", "expected"),
    [([], None), ([1.0], None), ([5.0, 1.0, 3.0], 2.0), ([1.0, NAN], None), ([NAN, 1.0], None), ([-math.inf, 1], None)],
)
def test_the_trend_is_the_difference_of_the_last_two_scores(scores: list[float], expected: float | None) -> None:
    assert trend_of(reports(*scores)) == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"variance_gradient_scaling": False}, GradientScale(7, None)),
        ({"vgs_warmup_steps": 5}, GradientScale(7, 1.0, warming_up=True)),
    ],
)
def test_a_scaling_that_is_off_or_warming_up_is_said(settings: dict[str, Any], expected: GradientScale) -> None:
    assert gradient_scale(tiny(0, **settings).get_parameters(), 7) == expected


MEMBER = WatchedMember(1, 3, 12.5, -1.25, 8, {"lr": 0.02}, {"lr": 0.01}, 2, (1, 0), 6, GradientScale(8, 0.25), None)


def population_of(*members: WatchedMember, events: tuple[LineageEvent, ...] = ()) -> WatchedPopulation:
    return WatchedPopulation(Path("here"), 1e9, "return", "min", 2, 10, members, events, {"pbt/ready_members": 2})


class TestShowing:
    def test_a_row_has_all_that_is_known(self) -> None:
        row = row_of(text_of(population_of(MEMBER)), 3)
        assert row == ["1", "3", "12.5", "-1.25", "8", "0.02", "x2", "2", "3", "<-", "1", "<-", "0", "0.25", "no"]

    def test_the_heading_says_what_a_score_is_and_when_members_copy(self) -> None:
        text = text_of(population_of(MEMBER))
        assert "population in here, last change 5 s ago" in text
        assert "score: return, the smallest is best; members copy after every 2 updates, next after update 10" in text
        assert "pbt/: ready_members 2" in text

    @pytest.mark.parametrize(
        ("changes", "last_words"),
        [
            ({"unscored": Unscored(4, diverged=True), "score": NAN}, ["since", "4"]),
            ({"unscored": Unscored(4, diverged=False), "score": NAN}, ["no", "score", "since", "4"]),
            ({"unscored": Unscored(4, diverged=True), "copied_at": 8}, ["since", "4,", "copied", "1"]),
            ({"score": None}, ["0.25", "-"]),
            ({"scale": GradientScale(8, None)}, ["0", "off", "no"]),
            ({"scale": GradientScale(6, 1.0, warming_up=True)}, ["1", "(warm-up)", "at", "6", "no"]),
        ],
    )
    def test_divergence_and_scale_are_told_in_words(self, changes: dict[str, Any], last_words: list[str]) -> None:
        row = row_of(text_of(population_of(replace(MEMBER, **changes))), 3)
        assert row[-len(last_words) :] == last_words

    @pytest.mark.parametrize(
        ("before", "value", "shown"),
        [
            (0.01, 0.02, "0.02 x2"),
            (4, 5, "5 x1.25"),
            (None, "relu", "relu was -"),
            ("tanh", "relu", "relu was tanh"),
            (0.0, 0.5, "0.5 was 0"),
            (False, True, "True was False"),
            (0.5, 0.5, "0.5"),
        ],
    )
    def test_a_hyperparameter_has_its_change(self, before: Any, value: Any, shown: str) -> None:
        member = replace(MEMBER, hyperparams={"x": value}, before={"x": before})
        assert watch_view.hyperparam(member, "x").plain == shown
        assert watch_view.hyperparam(replace(member, before=None), "x").plain == shown.split(" ")[0]

    def test_a_long_lineage_is_cut(self) -> None:
        assert watch_view.lineage(replace(MEMBER, sources=())) == "-"
        assert watch_view.lineage(replace(MEMBER, sources=(1, 0, 2, 4))) == "3 <- 1 <- 0 <- 2 <- 4"
        assert watch_view.lineage(replace(MEMBER, sources=(1, 0, 2, 4, 5))) == "3 <- 1 <- 0 <- 2 <- 4 <- ..."

    def test_hyperparameters_have_a_table_of_their_own_where_the_terminal_is_narrow(self) -> None:
        many = replace(MEMBER, hyperparams={f"setting_{number}": 0.5 for number in range(4)}, before=None)
        wide, narrow = (text_of(population_of(many), width=width) for width in (200, 80))
        assert wide.count("member ") == 1
        assert narrow.count("member ") == 2
        assert all(f"setting_{number}" in text for text in (wide, narrow) for number in range(4))
        assert "…" not in narrow

    def test_an_event_says_who_copied_whom_and_what_changed(self) -> None:
        copied = LineageEvent("exploit", 2, 6, 1.5, {"lr": 0.2, "x": 1}, {"lr": 0.1, "x": 1}, 1, 5, "v2")
        explored = LineageEvent("explore", 1, 6, None, {"lr": 0.2}, {"lr": 0.2})
        start = LineageEvent("start", 0, 0, None, {"lr": 0.5})
        text = text_of(population_of(MEMBER, events=(start, copied, explored)))
        assert "update 0: member 0 started with lr 0.5\n" in text
        assert "update 6: member 2 copied member 1 of update 5, score 1.5: lr 0.1 -> 0.2\n" in text
        assert "update 6: member 1 explored: the same hyperparameters\n" in text

    def test_as_many_events_as_fit_are_shown_and_the_latest_of_them(self) -> None:
        events = tuple(LineageEvent("start", number, 0, None, {"lr": 0.5}) for number in range(20))
        for height, first in ((60, 12), (18, 17), (10, 20)):
            text = text_of(population_of(MEMBER, events=events), force_terminal=True, height=height)
            shown = [int(number) for number in re.findall(r"member (\d+) started", text)]
            assert shown == list(range(first, 20))
            assert len(text.splitlines()) <= height or height == 10


class TestLive:
    def test_it_shows_again_what_has_changed_and_ends_with_ctrl_c(self, tmp_path: Path) -> None:
        population, pauses = build(tmp_path), 0
        population.train(1)
        into = console(force_terminal=True)

        def pause(seconds: float) -> None:
            nonlocal pauses
            assert 1 <= seconds <= 2
            pauses += 1
            if pauses == 2:
                build(tmp_path).train(2)
            if pauses == 4:
                raise KeyboardInterrupt

        watch_view.watch(tmp_path, console=into, pause=pause)
        shown = str(into.file.getvalue())  # type: ignore[attr-defined]
        assert pauses == 4
        rows = [line.split() for line in shown.splitlines()]
        steps = [row[4] for row in rows if row[:1] == ["1"]]
        assert steps == ["1", "1", "2", "2", "2"], "one for each look, and what remains at the end"

    @pytest.mark.parametrize("arguments", [["--once"], []])
    def test_the_command_shows_it_once_where_there_is_no_terminal(
        self, arguments: list[str], trained: Population, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(["--watch", str(trained.folder), *arguments]) == 0
        shown, said = capsys.readouterr()
        assert said == ""
        best = trained.scheduler.ranked()[0]
        assert row_of(shown, best.member_id)[:3] == ["1", str(best.member_id), f"{best.performance:.4g}"]
        assert "learning_rate" in shown
        assert "exploitation_count" in shown

    def test_once_alone_is_an_error(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["--once", "--env", "CartPole-v1", "--folder", str(tmp_path / "new")]) == 2
        assert "--once shows a population once, and there is no --watch DIR" in capsys.readouterr().err
        assert not (tmp_path / "new").exists()
