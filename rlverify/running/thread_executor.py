"""Runs tasks in threads, for tasks that start a process of their own and wait for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from rlverify.running.executor import Executor, Note, OnWait, Result, Task
from rlverify.running.executors import ProcessExecutor
from rlverify.running.pool import Ended


@dataclass(frozen=True)
class ThreadExecutor(Executor):
    """Runs tasks in threads of this process. What the function raises is raised here.

    :param jobs: threads
    """

    jobs: int

    def _map(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], note: Note[Task, Result], on_wait: OnWait
    ) -> list[Ended[Result]]:
        def timed(task: Task) -> Ended[Result]:
            started = time.monotonic()
            return Ended(function(task), None, time.monotonic() - started)

        pool = ThreadPoolExecutor(self.jobs)
        try:
            numbers = {pool.submit(timed, task): number for number, task in enumerate(tasks)}
            for future in as_completed(numbers):
                note(tasks[numbers[future]], future.result())
                on_wait()
            return [future.result() for future in numbers]
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def in_threads(executor: Executor) -> Executor:
    """Threads instead of worker processes, which would only wait; other executors stay."""
    return ThreadExecutor(executor.jobs) if isinstance(executor, ProcessExecutor) else executor
