"""The page on scale: what it computes from its figures, what it measures, and that the committed one follows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks import scale, scale_executors, scale_page, scale_plots
from benchmarks.scale_population import INTERVAL, ROUNDS, SimulatedPopulation, config_of, simulate
from rlcore import PBTScheduler
from rlcore.pbt.population import read_lineage, read_state

SECONDS = {
    "statistics": 1e-4,
    "report": 0.01,
    "state": 0.2,
    "write": 0.3,
    "old models": 0.002,
    "one record": 0.004,
    "exploit": 3e-4,
    "lineage": 0.05,
    "decision, truncation": 1e-6,
    "decision that ranks, truncation": 1e-3,
    "decision, binary_tournament": 2e-6,
    "decision that ranks, binary_tournament": 2e-3,
}


def population(members: int) -> dict[str, Any]:
    """Figures of a size, where a processor is busy half of the time."""
    return {
        "members": members,
        "rounds": 3,
        "copies": members * 3 // 5,
        "costs": {name: {"measured": 9, "wall_s": each, "cpu_s": each / 2} for name, each in SECONDS.items()},
        "state_bytes": [number * members for number in (50, 70, 100)],
        "checkpoint_files": 2 * members,
        "checkpoint_bytes": 4096 * members,
        "files": 3 * members + 2,
        "lineage_bytes": 100 * members,
        "start_mib": 250,
        "peak_mib": 300,
    }


def workers(seconds: float, count: int) -> dict[str, float]:
    return {"workers": count, "tasks": 40, "per_task_s": seconds, "own_wall_s": 2 * seconds, "own_cpu_s": 0.2}


def executor(overhead: float) -> dict[str, Any]:
    return {
        "overhead": {"jobs": 2, "tasks": 200, "per_task_s": overhead},
        "workers": [workers(0.2, 1), workers(0.1, 4)],
    }


@pytest.fixture
def figures() -> dict[str, Any]:
    """Of two sizes and three executors."""
    parts = {
        "populations": {"10000": population(10_000), "100": population(100)},
        "model": {"memory_mib": 2.0, "file_bytes": 2**20, "save": {"measured": 9, "wall_s": 0.1, "cpu_s": 0.05}},
        "executors": {"inline": executor(1e-6), "processes": executor(0.0199), "ray": executor(0.0501)},
    }
    machine = {"cores": 2, "architecture": "x86_64", "load": 1.5}
    return {name: {"machine": machine, "figures": each} for name, each in parts.items()}


def test_a_turn_has_a_commit() -> None:
    parts = scale_page.turn(population(100))
    assert sum(parts.values()) == pytest.approx(0.01 + 0.2 + 0.3 + 0.002 + 3e-4)
    assert scale_page.turn(population(100), "cpu_s")["write"] == 0.15


def test_a_round_is_a_turn_of_each_member_and_one_commit_more() -> None:
    expected = 100 * 0.5123 + 0.2 + 0.3 + 0.002 + 0.05 + 1e-4
    assert scale_page.round_seconds(population(100)) == pytest.approx(expected)


def test_a_cheaper_turn_shares_one_whole_commit_among_the_members_of_a_round() -> None:
    expected = 0.01 + 3e-4 + 0.004 + (0.2 + 0.3 + 0.002 + 0.05) / 100
    assert scale_page.cheaper_turn(population(100)) == pytest.approx(expected)


def test_the_first_screen_says_what_breaks_first_and_at_what_size(figures: dict[str, Any]) -> None:
    for each in figures["populations"]["figures"].values():
        each["costs"]["write"]["cpu_s"] = 0.03 * each["members"]
    page = scale_page.report(figures)
    first = page.partition("\n## A turn")[0]
    assert "It gets slow with 100 members, the smallest simulated size whose turns cost more than 1 s" in first
    told = "With 10,000 members a turn costs 5.0 min next to training, of which “commit: write the state” is 100.0%. A"
    assert told in first
    assert "A round takes 35 d (computed)" in first
    assert "So 16 GiB are full with 8,192 members, and 10,000 need 20 GiB (computed)." in first
    assert "25 bytes for each report" in first
    assert "With 10,000 members a decision takes 0.5 µs; a decision that ranks for itself takes 500 µs" in first


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("| processes | 2 |", "20 ms | under 20 ms | MET |"),
        ("| ray | 2 |", "50 ms | under 50 ms | MISSED |"),
        ("| processes | 4 (oversubscribed) |", "100 ms | 2.00 | 200 ms | 200 ms |"),
        ("| processes | 1 |", "200 ms | 1.00 | 400 ms | 200 ms |"),
    ],
)
def test_executors_have_a_target_and_more_workers_than_cores_a_mark(
    figures: dict[str, Any], row: str, told: str
) -> None:
    assert f"{row} {told}" in scale_page.report(figures)


def test_a_part_that_was_not_measured_has_no_section(figures: dict[str, Any]) -> None:
    del figures["executors"]
    page = scale_page.report(figures)
    assert "What breaks first" in page
    assert "executor for each task" not in page


def test_every_plot_of_the_page_is_drawn_and_is_the_same_bytes_each_time(
    figures: dict[str, Any], tmp_path: Path
) -> None:
    linked = re.findall(r"!\[.*?\]\((.*?)\)", scale_page.report(figures))
    drawn = []
    for folder in (tmp_path / "first", tmp_path / "second"):
        folder.mkdir()
        scale_plots.draw(figures, folder)
        assert sorted(path.name for path in folder.iterdir()) == sorted(linked)
        drawn.append([(folder / name).read_bytes() for name in linked])
    assert drawn[0] == drawn[1]


def test_a_simulated_population_leaves_the_files_of_a_real_one(tmp_path: Path) -> None:
    found = simulate(4, tmp_path)
    assert (found["members"], found["copies"], found["checkpoint_files"]) == (4, ROUNDS, 8)
    assert found["files"] == 8 + 4 + 2
    assert found["costs"]["report"]["measured"] == found["costs"]["exploit"]["measured"] == 4 * ROUNDS
    assert set(found["costs"]) == set(SECONDS)
    state = read_state(tmp_path)
    assert state is not None
    assert (state["explored_step"], state["lineage_size"]) == (ROUNDS * INTERVAL, found["lineage_bytes"])
    assert len(read_lineage(tmp_path)) == ROUNDS
    assert found["state_bytes"] == sorted(set(found["state_bytes"]))
    restored = PBTScheduler(config_of(4, tmp_path))
    restored.load_state_dict(state["scheduler"])
    assert restored.state_dict() == state["scheduler"]


def test_measuring_decisions_changes_nothing(tmp_path: Path) -> None:
    simulated = SimulatedPopulation(6, tmp_path)
    simulated.report(INTERVAL)
    before = str(simulated.scheduler.state_dict())
    simulated.decide()
    assert str(simulated.scheduler.state_dict()) == before
    assert simulated.scheduler.config is simulated.config


@dataclass(frozen=True)
class Ended:
    """As an executor gives it."""

    result: Any


class CountedExecutor:
    """Ends a task every second of a clock, the first one after a minute."""

    def __init__(self, jobs: int, clock: list[float]) -> None:
        self.jobs, self.clock, self.closed = jobs, clock, False

    def map(
        self, function: Callable[[int], Any], tasks: Sequence[int], note: Callable[[int, Ended], None]
    ) -> list[Ended]:
        ended = []
        self.clock[0] += 60.0
        for task in tasks:
            self.clock[0] += 1.0
            ended.append(Ended(function(task)))
            note(task, ended[-1])
        return ended

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[CountedExecutor]:
    """The executors that ``make`` makes; tasks of fixed work take no time here."""
    monkeypatch.setattr(scale_executors, "fixed_work", lambda _: (0.25, 0.125))
    return []


@pytest.fixture
def make(made: list[CountedExecutor], monkeypatch: pytest.MonkeyPatch) -> scale_executors.Make:
    """Makes executors of one clock."""
    clock = [0.0]
    monkeypatch.setattr(scale_executors, "perf_counter", lambda: clock[0])

    def new(jobs: int) -> CountedExecutor:
        made.append(CountedExecutor(jobs, clock))
        return made[-1]

    return new


def test_the_start_of_an_executor_is_no_overhead(make: scale_executors.Make, made: list[CountedExecutor]) -> None:
    assert scale_executors.overhead(make) == {"jobs": 2, "tasks": 200, "per_task_s": 1.0}
    assert [each.closed for each in made] == [True]


def test_the_time_per_task_is_from_result_to_result(make: scale_executors.Make, made: list[CountedExecutor]) -> None:
    found = scale_executors.time_per_task(make, 4)
    assert found == {"workers": 4, "tasks": 40, "per_task_s": 1.0, "own_wall_s": 0.25, "own_cpu_s": 0.125}
    assert [(each.jobs, each.closed) for each in made] == [(4, True)]


def test_a_part_that_is_measured_again_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "FOLDER", tmp_path)
    monkeypatch.setattr(scale, "FIGURES", tmp_path / "scale.json")
    monkeypatch.setattr(scale, "PARTS", {"model": lambda: {"memory_mib": 1.0}, "executors": lambda: {"a": 2}})
    scale.run("model")
    scale.run("executors")
    scale.run("model")
    found = scale.read()
    assert {name: each["figures"] for name, each in found.items()} == {
        "model": {"memory_mib": 1.0},
        "executors": {"a": 2},
    }
    assert set(found["model"]["machine"]) == {"cores", "architecture", "load"}


def test_the_committed_page_follows_from_the_committed_figures() -> None:
    figures = json.loads(scale.FIGURES.read_text(encoding="utf-8"))
    page = scale.PAGE.read_text(encoding="utf-8")
    assert page == scale_page.report(figures)
    for name in re.findall(r"!\[.*?\]\((.*?)\)", page):
        assert (scale.FOLDER / name).is_file(), name
