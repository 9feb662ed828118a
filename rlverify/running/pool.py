"""Runs tasks in worker processes, one for each core.

A worker has one task at a time. So the task whose process died is known, and the others go on.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Generic, TypeVar

from rlverify.records import interrupts
from rlverify.records.printing import send_stdout_to_stderr

Task = TypeVar("Task")
Result = TypeVar("Result")

THREAD_LIMITS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
POLL = 1.0
"""Seconds between two looks at the workers; a process that a dead worker started can keep its pipes open."""
GRACE = 10.0
"""Seconds that a worker has to end before it is killed; threads that a task left running hold it up."""


@dataclass(frozen=True)
class Ended(Generic[Result]):
    """What became of a task.

    :param result: what its function returned; None if its process ended first
    :param exit_code: of that process, negative for a signal; None if the function returned, or if that is not known
    :param seconds: from the start of the task to its end
    :param reason: why there is neither result nor exit code; else empty
    """

    result: Result | None
    exit_code: int | None
    seconds: float
    reason: str = ""


class Worker(Generic[Task, Result]):
    """A process, and the task that it runs.

    :param function: as of `run_each`
    :param first: its first task, which is started
    :param folder: for temporary files of its tasks
    """

    def __init__(self, function: Callable[[Task], Result], first: Task, folder: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, function, folder))
        self._process.start()
        theirs.close()
        self.start(first)

    def start(self, task: Task) -> None:
        """Give it a task."""
        self._started = time.monotonic()
        with suppress(BrokenPipeError):  # it has died, which `end` reports
            self._connection.send(task)

    @property
    def signals(self) -> list[Connection | int]:
        """What is ready when the task has ended."""
        return [self._connection, self._process.sentinel]

    @property
    def has_ended(self) -> bool:
        """Whether its task has, or its process."""
        return self._connection.poll() or not self._process.is_alive()

    def end(self) -> Ended[Result]:
        """What became of its task, which has ended."""
        seconds = time.monotonic() - self._started
        with suppress(EOFError, OSError):  # it died, perhaps while it sent the result
            if self._connection.poll():
                return Ended(self._connection.recv(), None, seconds)
        self.join()
        return Ended(None, self._process.exitcode, seconds)

    def release(self) -> None:
        """Let the process end."""
        self._connection.close()

    def terminate(self) -> None:
        """Stop the process, whatever it does."""
        self._process.terminate()
        self.release()

    def join(self) -> None:
        """Wait for the process to end, and kill it if it does not."""
        self._process.join(GRACE)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def run_each(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    *,
    processes: int,
    note: Callable[[Task, Ended[Result]], None] = lambda *_: None,
    on_wait: Callable[[], None] = lambda: None,
) -> list[Ended[Result]]:
    """Call a function with each of the tasks, which are started in their order.

    A task whose process dies is not run again; another process takes over what is left. What tasks leave in the folder
    for temporary files is removed: Stable-Baselines3, for one, leaves a folder for each model that learns.

    :param function: a module-level function that raises nothing
    :param note: called once for each task, when it has ended
    :param on_wait: called at least every second while tasks run
    :return: what became of each task, in their order
    :raises KeyboardInterrupt: after the workers have been stopped
    """
    waiting = deque(range(len(tasks)))
    found: dict[int, Ended[Result]] = {}
    busy: dict[Worker[Task, Result], int] = {}
    done: list[Worker[Task, Result]] = []
    room = tempfile.TemporaryDirectory(prefix="rlverify-", ignore_cleanup_errors=True)
    resource_tracker.ensure_running()  # if a worker started it, that would let the signals through again
    try:
        with interrupts.raised():
            while waiting or busy:
                while waiting and len(busy) < processes:
                    with interrupts.held_back():
                        number = waiting.popleft()
                        worker = Worker(function, tasks[number], room.name)
                        busy[worker] = number
                wait([each for worker in busy for each in worker.signals], POLL)
                for worker in [each for each in busy if each.has_ended]:
                    number = busy.pop(worker)
                    found[number] = ended = worker.end()
                    if ended.exit_code is None and waiting:
                        busy[worker] = waiting.popleft()
                        worker.start(tasks[busy[worker]])
                    else:
                        done.append(worker)
                        worker.release()
                    note(tasks[number], ended)
                on_wait()
    finally:
        for worker in busy:
            worker.terminate()
        for worker in (*busy, *done):
            worker.join()
        room.cleanup()
    return [found[number] for number in range(len(tasks))]


def _work(connection: Connection, function: Callable[[Task], Result], folder: str) -> None:
    """Run tasks until there are no more, with their temporary files in a folder."""
    interrupts.allow_termination()
    send_stdout_to_stderr()
    os.environ["TMPDIR"], tempfile.tempdir = folder, folder
    pin_threads()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError):
        while True:
            connection.send(function(connection.recv()))


def _end_with_parent() -> None:
    """Without its parent, a worker would run its task to the end."""
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
