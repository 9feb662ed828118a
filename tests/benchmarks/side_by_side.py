"""Speed as a ratio between things that are run side by side in one process, round by round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median
from time import perf_counter
from typing import Any, Literal

Action = Callable[[], object]


@dataclass(frozen=True)
class Target:
    """What a ratio is to be.

    :param bound: of the median of ours / reference over all rounds
    :param side: whether the ratio is to be at most or at least that
    :param limited_by: what the floor is made of, for the report; empty where none is measured
    """

    bound: float
    side: Literal["at most", "at least"] = "at most"
    limited_by: str = ""


@dataclass(frozen=True)
class Figures:
    """Ratios over all rounds, and the median seconds of one run."""

    ratio: float
    least: float
    most: float
    floor: float | None
    ours_s: float
    reference_s: float
    rounds: int


def compare(
    benchmark: Any, ours: Action, reference: Action, target: Target, *, rounds: int, floor: Action | None = None
) -> Figures:
    """Run all in turns, and leave figures and target in the benchmark's ``extra_info``.

    :param floor: what ours cannot do without; its ratio to the reference is reported beside ours
    """
    actions = [ours, reference, *([] if floor is None else [floor])]
    times: list[list[float]] = []

    def one_round() -> None:
        # Each round begins with another, so that none always finds the cache as the same one left it.
        turn = len(times) % len(actions)
        seconds = {index: _timed(actions[index]) for index in [*range(turn, len(actions)), *range(turn)]}
        times.append([seconds[index] for index in range(len(actions))])

    for action in actions:
        action()
    benchmark.pedantic(one_round, rounds=rounds, iterations=1, warmup_rounds=2)
    del times[:2]
    ratios = [each[0] / each[1] for each in times]
    figures = Figures(
        median(ratios),
        min(ratios),
        max(ratios),
        None if floor is None else median(each[2] / each[1] for each in times),
        median(each[0] for each in times),
        median(each[1] for each in times),
        rounds,
    )
    benchmark.extra_info |= asdict(figures) | {"target": asdict(target)}
    return figures


def _timed(action: Action) -> float:
    start = perf_counter()
    action()
    return perf_counter() - start
