"""The page on speed: which side of its target a ratio lies on, what a round times, and what the page shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import plots, speed
from tests.benchmarks import side_by_side
from tests.benchmarks.side_by_side import Target, compare, series, table


class Rounds:
    """Stands in for pytest-benchmark's fixture: runs what it is given as often as that would."""

    def __init__(self) -> None:
        self.extra_info: dict[str, Any] = {}

    def pedantic(self, action: Any, *, rounds: int, iterations: int, warmup_rounds: int) -> None:
        for _ in range((rounds + warmup_rounds) * iterations):
            action()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that only the actions move on."""
    now = [0.0]
    monkeypatch.setattr(side_by_side, "perf_counter", lambda: now[0])
    return now


def test_ratios_are_of_each_round_and_rounds_that_warm_up_do_not_count(clock: list[float]) -> None:
    costs = iter([90.0, 90.0, 90.0, 2.0, 6.0, 3.0])

    def ours() -> None:
        clock[0] += next(costs)

    def reference() -> None:
        clock[0] += 2.0

    def floor() -> None:
        clock[0] += 1.0

    benchmark = Rounds()
    figures = compare(benchmark, ours, reference, Target(2.0), rounds=3, floor=floor)
    assert (figures.ratio, figures.least, figures.most, figures.floor) == (1.5, 1.0, 3.0, 0.5)
    assert (figures.ours_s, figures.reference_s, figures.rounds) == (3.0, 2.0, 3)
    assert benchmark.extra_info["target"]["bound"] == 2.0


@pytest.mark.parametrize(
    ("side", "ratio", "verdict"),
    [("at most", 2.0, "MET"), ("at most", 2.01, "MISSED"), ("at least", 2.0, "MET"), ("at least", 1.99, "MISSED")],
)
def test_a_target_is_met_on_its_own_side(side: str, ratio: float, verdict: str) -> None:
    figures = {"ratio": ratio, "least": 1.0, "most": 3.0, "floor": None, "ours_s": 1.0, "reference_s": 1.0, "rounds": 3}
    target = {"bound": 2.0, "side": side, "limited_by": ""}
    page = speed.report({"bench_x.py::bench_step[a]": {**figures, "target": target}})
    row = next(line for line in page.splitlines() if line.startswith("| step[a]"))
    assert row.split("|")[5].strip() == verdict


def test_a_target_of_at_least_compares_speeds_from_the_first_round_on(clock: list[float]) -> None:
    def ours() -> None:
        clock[0] += 2.0

    def reference() -> None:
        clock[0] += 6.0

    target = Target(2.5, "at least")
    figures = compare(Rounds(), ours, reference, target, rounds=4)
    assert (figures.ratio, figures.rounds) == (3.0, 4)


def test_without_warming_up_the_first_round_counts(clock: list[float]) -> None:
    costs = iter([8.0, 2.0, 2.0])

    def ours() -> None:
        clock[0] += next(costs)

    def reference() -> None:
        clock[0] += 2.0

    figures = compare(Rounds(), ours, reference, Target(2.0), rounds=3, warm=False)
    assert (figures.ratio, figures.most) == (1.0, 4.0)


def test_what_is_run_before_is_not_timed(clock: list[float]) -> None:
    def ours() -> None:
        clock[0] += 1.0

    def slow() -> None:
        clock[0] += 100.0

    figures = compare(Rounds(), ours, ours, Target(2.0), rounds=2, before=slow)
    assert (figures.ours_s, figures.reference_s) == (1.0, 1.0)


@pytest.fixture
def figures() -> dict[str, Any]:
    """A file of benchmarks with ratios, and one with a table and a series."""
    ratio = {"least": 1.0, "most": 3.0, "floor": 0.5, "ours_s": 1.0, "reference_s": 1.0, "rounds": 3}
    target = {"bound": 2.0, "side": "at most", "limited_by": "the rest"}
    other = Rounds()
    table(other, ["members", "ms"], [["4", "0.1"], ["64", "0.7"]], "It grows.")
    series(other, "members", [4.0, 64.0], {"ms": [0.1, 0.7]}, logarithmic=True)
    return {
        "bench_x.py::bench_step[a]": {**ratio, "ratio": 1.5, "target": target},
        "bench_y_z.py::bench_exploits": other.extra_info,
    }


def test_tables_stand_under_the_name_of_their_benchmark(figures: dict[str, Any]) -> None:
    page = speed.report(figures)
    assert "### exploits\n\n| members | ms |\n| --- | --- |\n| 4 | 0.1 |\n| 64 | 0.7 |\n\nIt grows.\n" in page


def test_every_plot_of_the_page_is_drawn_and_is_the_same_bytes_each_time(
    figures: dict[str, Any], tmp_path: Path
) -> None:
    linked = re.findall(r"!\[.*?\]\((.*?)\)", speed.report(figures))
    assert linked == ["bench-x.svg", "bench-y-z-exploits.svg"]
    drawn = []
    for folder in (tmp_path / "first", tmp_path / "second"):
        folder.mkdir()
        plots.draw(figures, folder)
        assert sorted(path.name for path in folder.iterdir()) == linked
        drawn.append([(folder / name).read_bytes() for name in linked])
    assert drawn[0] == drawn[1]
    assert b"step[a]" in drawn[0][0]
    assert b"members" in drawn[0][1]
