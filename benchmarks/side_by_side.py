"""Speed as a ratio between things that are run side by side in one process, round by round."""

from __future__ import annotations

import cProfile
import pstats
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Literal

Action = Callable[[], object]


@dataclass(frozen=True)
class Target:
    """What a ratio is to be.

    :param bound: of the median over all rounds of the time of ours over that of the reference; or, where it is to be
        at least that, of the speed of ours over that of the reference
    :param side: whether times or speeds are compared
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
    benchmark: Any,
    ours: Action,
    reference: Action,
    target: Target,
    *,
    rounds: int,
    floor: Action | None = None,
    before: Action | None = None,
    warm: bool = True,
) -> Figures:
    """Run all in turns, and leave figures and target in the benchmark's ``extra_info``.

    :param floor: what ours cannot do without; its ratio to the reference is reported beside ours
    :param before: run before every action, outside its time
    :param warm: whether everything is run a few times before it counts; False where the first times are the point
    """
    actions = [ours, reference, *([] if floor is None else [floor])]
    times: list[list[float]] = []

    def one_round() -> None:
        # Each round begins with another, so that none always finds the cache as the same one left it.
        turn = len(times) % len(actions)
        seconds = {index: _timed(actions[index], before) for index in [*range(turn, len(actions)), *range(turn)]}
        times.append([seconds[index] for index in range(len(actions))])

    warmup_rounds = 3 if warm else 0
    benchmark.pedantic(one_round, rounds=rounds, iterations=1, warmup_rounds=warmup_rounds)
    del times[:warmup_rounds]

    def ratio(time: float, reference_time: float) -> float:
        return time / reference_time if target.side == "at most" else reference_time / time

    ratios = [ratio(each[0], each[1]) for each in times]
    figures = Figures(
        median(ratios),
        min(ratios),
        max(ratios),
        None if floor is None else median(ratio(each[2], each[1]) for each in times),
        median(each[0] for each in times),
        median(each[1] for each in times),
        rounds,
    )
    benchmark.extra_info |= asdict(figures) | {"target": asdict(target)}
    return figures


def _timed(action: Action, before: Action | None) -> float:
    if before is not None:
        before()
    start = perf_counter()
    action()
    return perf_counter() - start


def table(benchmark: Any, columns: list[str], rows: list[list[str]], note: str = "") -> None:
    """Leave figures that are no ratio for the report, and what is to be said of them."""
    benchmark.extra_info |= {"columns": columns, "rows": rows, "note": note}


def series(
    benchmark: Any, axis: str, positions: list[float], lines: dict[str, list[float]], *, logarithmic: bool = False
) -> None:
    """Leave what is to be drawn: one panel a line, over the same positions, which may stand on a logarithmic axis."""
    benchmark.extra_info["plot"] = {
        "axis": axis,
        "positions": positions,
        "lines": lines,
        "logarithmic": logarithmic,
    }


def profile(benchmark: Any, actions: dict[str, Action], *, repetitions: int, top: int = 8) -> None:
    """Leave where the time of each action goes: the functions that take most of it themselves.

    The profiler slows Python code and not what is computed by one call, so that shares of the former are too large.
    """
    rows: list[list[str]] = []
    for name, action in actions.items():
        action()
        profiler = cProfile.Profile()
        profiler.enable()
        for _ in range(repetitions):
            action()
        profiler.disable()
        # (calls, calls that are no recursion, own time, time with callees) of each function
        own = {function: figures[2] for function, figures in _figures_of(profiler).items()}
        whole = sum(own.values())
        for function in sorted(own, key=lambda each: own[each], reverse=True)[:top]:
            milliseconds = 1e3 * own[function] / repetitions
            rows.append([name, f"`{_label(function)}`", f"{milliseconds:.3g}", f"{own[function] / whole:.0%}"])
    benchmark.pedantic(lambda: None)
    table(benchmark, ["of", "function", "ms", "share"], rows)


def _figures_of(profiler: cProfile.Profile) -> dict[tuple[str, int, str], Any]:
    figures: dict[tuple[str, int, str], Any] = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    return figures


def _label(function: tuple[str, int, str]) -> str:
    """``file.function``, or for what is no Python ``Type.method``."""
    file, _, name = function
    if file != "~":
        return f"{Path(file).stem}.{name}"
    of_type = re.search(r"method '(\w+)' of '([\w.]+)' objects", name)
    return (
        f"{of_type[2].rpartition('.')[2]}.{of_type[1]}"
        if of_type
        else name.strip("<>").removeprefix("built-in method ")
    )
