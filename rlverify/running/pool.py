"""Runs tasks in worker processes, one for each core.

A task whose process dies is identified, and the others go on.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import active_children, get_context
from typing import Generic, TypeVar

from rlverify.records import interrupts

Task = TypeVar("Task", bound=Hashable)
Result = TypeVar("Result")

THREAD_LIMITS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class Ended(Generic[Result]):
    """What became of a task.

    :param result: what its function returned; None where its process died
    :param retried: a process died that ran this or another task at the same time, and none died when each was run
        again alone
    """

    result: Result | None
    retried: bool = False


def run_each(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    *,
    processes: int,
    note: Callable[[Task, Ended[Result]], None],
) -> None:
    """Call a function with each of the tasks, which are started in their order.

    A worker process that dies takes all pending tasks with it. Those that can have run then are run once more, each in
    a process of its own, and the others in a pool again.

    :param function: a module-level function that raises nothing
    :param note: called once for each task, when it has ended
    :raises KeyboardInterrupt: after the workers have been stopped
    """
    ended: set[Task] = set()

    def end(task: Task, outcome: Ended[Result]) -> None:
        ended.add(task)
        note(task, outcome)

    pending = list(tasks)
    while pending:
        _run_in_pool(function, pending, processes, lambda task, result: end(task, Ended(result)))
        pending = [task for task in tasks if task not in ended]
        suspects, pending = pending[:processes], pending[processes:]
        for task, outcome in _run_alone(function, suspects).items():
            end(task, outcome)


def _run_in_pool(
    function: Callable[[Task], Result], tasks: Sequence[Task], processes: int, note: Callable[[Task, Result], None]
) -> None:
    """Notes every task that ends; those of a worker that died, and those behind it, are not noted."""
    others = set(active_children())
    executor = ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_prepare_worker)
    try:
        with interrupts.raised():
            with interrupts.held_back():
                futures = _submit(executor, function, tasks)
            for future in as_completed(futures):
                if not isinstance(future.exception(), BrokenProcessPool):
                    note(futures[future], future.result())
    except KeyboardInterrupt:
        for child in set(active_children()) - others:
            child.terminate()
        raise
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _run_alone(function: Callable[[Task], Result], suspects: Sequence[Task]) -> dict[Task, Ended[Result]]:
    """Those that a dead worker may have run, each in a process of its own."""
    results: dict[Task, Result] = {}
    for task in suspects:
        _run_in_pool(function, [task], 1, results.__setitem__)
    nobody_died = len(results) == len(suspects)
    return {task: Ended(results[task], nobody_died) if task in results else Ended(None) for task in suspects}


def _submit(
    executor: ProcessPoolExecutor, function: Callable[[Task], Result], tasks: Sequence[Task]
) -> dict[Future[Result], Task]:
    futures: dict[Future[Result], Task] = {}
    for task in tasks:
        try:
            futures[executor.submit(function, task)] = task
        except BrokenProcessPool:
            break
    return futures


def _prepare_worker() -> None:
    interrupts.allow_termination()
    pin_threads()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Without its parent, a worker would run what has been queued and then wait for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def pin_threads() -> None:
    """One thread for each process: sums in another order give other bits, and the pool fills the cores already."""
    for name in THREAD_LIMITS:
        os.environ[name] = "1"
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
