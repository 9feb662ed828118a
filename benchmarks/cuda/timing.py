"""Times of actions that run in turns on one device, until a number of rounds or a time budget is reached."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any, Final

import torch

Action = Callable[[], object]
Clock = Callable[[], float]
Record = dict[str, Any]
"""What becomes JSON."""

LONGEST_BATCH: Final = 200
"""Calls between two synchronizations, at most."""


@dataclass
class Budget:
    """Seconds that may be spent, counted from construction.

    :param clock: returns seconds
    """

    seconds: float
    clock: Clock = perf_counter
    _start: float = field(init=False)

    def __post_init__(self) -> None:
        self._start = self.clock()

    @property
    def spent(self) -> float:
        """Seconds since construction."""
        return self.clock() - self._start

    def is_over(self) -> bool:
        """Whether nothing is left."""
        return self.spent >= self.seconds

    def share(self, parts: int) -> Budget:
        """An equal share of what is left, for the first of ``parts`` parts."""
        return Budget(max(0.0, self.seconds - self.spent) / parts, self.clock)


@dataclass(frozen=True)
class Rounds:
    """How often to measure.

    :param planned: number of rounds, at least 1
    :param least_s: an action is called as often between two synchronizations as takes at least this long, seconds
    :param warm_up: calls of each action before any counts
    """

    planned: int
    least_s: float
    warm_up: int = 3


def wait(device: torch.device) -> None:
    """Until the device has done what was asked of it; the CPU has at once."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def side_by_side(
    actions: Mapping[str, Action], device: torch.device, rounds: Rounds, budget: Budget
) -> dict[str, list[float]]:
    """Seconds a call of each action in each round, the device's work included.

    The first round is always made, unless the budget is over before the warm-up: all lists are empty then. Each round
    begins with another action, so that none always finds the caches as the same one left them.
    """
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    if budget.is_over():
        return seconds
    calls = {name: _calls(action, device, rounds, budget.clock) for name, action in actions.items()}
    names = list(actions)
    for number in range(rounds.planned):
        if number > 0 and budget.is_over():
            break
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            seconds[name].append(_timed(actions[name], device, calls[name], budget.clock))
    return seconds


def _calls(action: Action, device: torch.device, rounds: Rounds, clock: Clock) -> int:
    """Warm up, and say how many calls are timed together."""
    for _ in range(rounds.warm_up):
        action()
    if rounds.least_s <= 0:
        return 1
    return min(LONGEST_BATCH, max(1, math.ceil(rounds.least_s / max(_timed(action, device, 1, clock), 1e-9))))


def _timed(action: Action, device: torch.device, calls: int, clock: Clock) -> float:
    wait(device)
    start = clock()
    for _ in range(calls):
        action()
    wait(device)
    return (clock() - start) / calls


def comparison(
    title: str, seconds: Mapping[str, list[float]], references: Mapping[str, str], planned: int, **more: Any
) -> Record:
    """What the page says of actions that ran side by side.

    :param references: name of the column by the name of the action that the others are divided by
    :param planned: rounds that the budget may have cut short
    :param more: further entries of the record
    :return: median seconds of each action, and [median, least, most] of its ratio to each reference over all rounds
    """
    ratios = {
        name: {column: _spread(own, seconds[reference]) for reference, column in references.items()}
        for name, own in seconds.items()
        if own
    }
    medians = {name: rounded(median(own)) for name, own in seconds.items() if own}
    made = min(map(len, seconds.values()))
    return {"title": title, "seconds": medians, "ratios": ratios, "rounds": made, "planned": planned, **more}


def _spread(own: list[float], reference: list[float]) -> list[float]:
    ratios = [mine / other for mine, other in zip(own, reference, strict=True)]
    return [rounded(each) for each in (median(ratios), min(ratios), max(ratios))]


def rounded(number: float) -> float:
    """To four digits, which is more than repeats."""
    return float(f"{number:.4g}")
