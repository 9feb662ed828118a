"""The page on speed: which side of its target a ratio lies on, and what a round times."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import speed
from tests.benchmarks import side_by_side
from tests.benchmarks.side_by_side import Target, compare


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
    costs = iter([9.0, 90.0, 90.0, 2.0, 6.0, 3.0])

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
