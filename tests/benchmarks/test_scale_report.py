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


@pytest.fixture
def figures() -> dict[str, Any]:
    """The committed ones."""
    found: dict[str, Any] = json.loads(scale.FIGURES.read_text(encoding="utf-8"))
    return found


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


def test_a_simulated_population_leaves_the_files_of_a_real_one(figures: dict[str, Any], tmp_path: Path) -> None:
    found = simulate(4, tmp_path)
    assert (found["members"], found["copies"], found["checkpoint_files"]) == (4, ROUNDS, 8)
    assert found["files"] == 8 + 4 + 2
    assert found["costs"]["report"]["measured"] == found["costs"]["exploit"]["measured"] == 4 * ROUNDS
    assert [set(found["costs"])] * 4 == [set(each["costs"]) for each in figures["populations"]["figures"].values()]
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


def test_the_committed_page_follows_from_the_committed_figures(figures: dict[str, Any]) -> None:
    page = scale.PAGE.read_text(encoding="utf-8")
    assert page == scale_page.report(figures)
    for name in re.findall(r"!\[.*?\]\((.*?)\)", page):
        assert (scale.FOLDER / name).is_file(), name
