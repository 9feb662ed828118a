"""What an executor adds to each task, and what a task takes with more workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from statistics import median
from time import perf_counter, process_time
from typing import Any, Final, TypeAlias

import numpy as np

from rlverify.running.executors import Executor

Make: TypeAlias = Callable[[int], Executor]
"""Makes an executor of so many workers."""

EMPTY_TASKS: Final = 200
WARM_UP: Final = 20
"""Empty tasks before the first that counts: workers have started by then."""
JOBS: Final = 2
"""Workers for empty tasks: as many as the machine has cores."""
WORKERS: Final = (1, 2, 4, 8)
WORK_TASKS: Final = 40
PRODUCTS: Final = 400
SIDE: Final = 200


def nothing(_: int) -> None:
    """A task without work."""


def fixed_work(_: int) -> tuple[float, float]:
    """A task of always the same matrix products; its own seconds by the clock, and on a processor."""
    wall, cpu = perf_counter(), process_time()
    matrix = np.eye(SIDE) + 0.001
    for _product in range(PRODUCTS):
        matrix = matrix @ matrix
        matrix /= np.abs(matrix).max()
    return perf_counter() - wall, process_time() - cpu


def overhead(make: Make, jobs: int = JOBS) -> dict[str, float]:
    """Seconds that each of :data:`EMPTY_TASKS` tasks takes, from the last result that warms up to the last one."""
    arrivals, _ = _mapped(make, nothing, WARM_UP + EMPTY_TASKS, jobs)
    return {"jobs": jobs, "tasks": EMPTY_TASKS, "per_task_s": _between(arrivals, WARM_UP)}


def time_per_task(make: Make, workers: int) -> dict[str, float]:
    """Seconds from result to result of tasks of fixed work, and what the tasks themselves took (medians).

    The first two results of each worker do not count.
    """
    warm_up = 2 * workers
    arrivals, values = _mapped(make, fixed_work, warm_up + WORK_TASKS, workers)
    own = values[warm_up:]
    return {
        "workers": workers,
        "tasks": WORK_TASKS,
        "per_task_s": _between(arrivals, warm_up),
        "own_wall_s": _digits(median(wall for wall, _ in own)),
        "own_cpu_s": _digits(median(cpu for _, cpu in own)),
    }


def _mapped(make: Make, function: Callable[[int], Any], number: int, jobs: int) -> tuple[list[float], list[Any]]:
    """When results came, in the order in which they came, and the results in the order of the tasks."""
    arrivals: list[float] = []
    with closing(make(jobs)) as executor:
        ended: Sequence[Any] = executor.map(function, range(number), note=lambda *_: arrivals.append(perf_counter()))
    return arrivals, [each.result for each in ended]


def _between(arrivals: Sequence[float], warm_up: int) -> float:
    counted = arrivals[warm_up - 1 :]
    return _digits((counted[-1] - counted[0]) / (len(counted) - 1))


def _digits(seconds: float) -> float:
    return float(f"{seconds:.4g}")
