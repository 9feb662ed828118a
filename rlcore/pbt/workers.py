"""The processes in which the members of a population train: this one, or worker processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from dataclasses import dataclass
from multiprocessing import spawn
from pathlib import Path
from typing import Any, Final, Self, TypeAlias, TypeVar

import cloudpickle
import torch

from rlcore.errors import SettingError, WorkerError
from rlcore.ppo.settings import whole_number

Task = TypeVar("Task")
Result = TypeVar("Result")

RETRIES: Final = 3
"""How often a task whose worker died is done again, the last time alone, so that an error names the right one."""


class InlineExecutor(nullcontext[None]):
    """Calls the function in this process, one task after the other.

    Call ``torch.set_num_threads(1)`` to get the bits that workers get, which have one thread each.
    """

    in_process = True

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[tuple[Task, Result]]:
        """Call ``function`` with each task, and yield the tasks with their results.

        :raises Exception: what the function raised, with a note that names the task
        """
        for task in tasks:
            try:
                result = function(task)
            except Exception as error:
                error.add_note(f"in {task}")
                raise
            yield task, result


@dataclass
class _Job:
    """A task, the file that it is in, and how many of its workers died."""

    task: Any
    path: Path
    deaths: int = 0


class ProcessExecutor:
    """Calls the function in worker processes of this machine, each with one task at a time and one thread.

    The workers are started with ``spawn``, so a script needs ``if __name__ == "__main__":`` around what it runs. They
    end with the context, with Ctrl-C, and when this process dies.

    :param jobs: number of workers
    :raises SettingError: if ``jobs`` is no whole number of at least 1
    """

    in_process = False

    def __init__(self, jobs: int) -> None:
        self.jobs = whole_number("jobs", jobs)
        if self.jobs < 1:
            raise SettingError("jobs", f"jobs={jobs!r} leaves no worker; give at least 1")
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        """Start no worker yet; raise RuntimeError in a worker that imports the script which started it."""
        spawn._check_not_importing_main()  # type: ignore[attr-defined]
        return self

    def __exit__(self, *_: object) -> None:
        """End the workers."""
        self._end_workers()

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[tuple[Task, Result]]:
        """Call ``function`` with every task, and yield the tasks with their results in the order in which they end.

        A task is taken from ``tasks`` when there is a worker for it. If a worker dies, new workers do all tasks again
        that have not ended.

        :param function: with the tasks and results it must be something that cloudpickle can pickle
        :raises WorkerError: if the workers of a task died more than :data:`RETRIES` times
        :raises Exception: what the function raised, with a note that names the task
        """
        again: deque[_Job] = deque()
        running: dict[Future[None], _Job] = {}
        with tempfile.TemporaryDirectory(prefix="rlcore-", ignore_cleanup_errors=True) as folder:
            jobs = (_written(function, task, Path(folder, str(number))) for number, task in enumerate(tasks))
            try:
                while self._fill(running, again, jobs):
                    done = wait(running, return_when=FIRST_COMPLETED).done
                    if any(isinstance(future.exception(), BrokenProcessPool) for future in done):
                        self._end_workers()
                        done = set(running)
                    ended = [(running.pop(future), future.exception()) for future in list(running) if future in done]
                    for job in (job for job, error in ended if error is None):
                        job.path.unlink()  # not by the worker, which can be killed before its answer has arrived
                        yield job.task, cloudpickle.loads(job.path.with_suffix(".result").read_bytes())
                    again.extend(_after_error(job, error) for job, error in ended if error is not None)
            except BaseException:
                self._end_workers()
                raise

    def _fill(self, running: dict[Future[None], _Job], again: deque[_Job], jobs: Iterator[_Job]) -> bool:
        """Give tasks to workers that have none, one that is on its last try alone; return whether any is running."""
        while True:
            alone = any(job.deaths == RETRIES for job in (*again, *running.values()))
            if len(running) >= (1 if alone else self.jobs):
                return True
            job = again.popleft() if again else next(jobs, None)
            if job is None:
                return bool(running)
            running[self._submit(job)] = job

    def _submit(self, job: _Job) -> Future[None]:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(self.jobs, multiprocessing.get_context("spawn"), _begin)
        try:
            return self._pool.submit(_do, job.path)
        except BrokenProcessPool:  # a worker died that had no task
            self._end_workers()
            return self._submit(job)

    def _end_workers(self) -> None:
        """Kill the workers, as files hold all that counts."""
        if self._pool is not None:
            for worker in list(self._pool._processes.values()):
                worker.kill()
            self._pool.shutdown()
            self._pool = None


Executor: TypeAlias = InlineExecutor | ProcessExecutor


def _written(function: Callable[[Any], Any], task: Any, path: Path) -> _Job:
    """Write a task to a file; in a pipe, a worker that dies within a long message would block all others."""
    path.write_bytes(cloudpickle.dumps((function, task)))
    return _Job(task, path)


def _do(path: Path) -> None:
    """Call the function of a file with its task, and write the result next to it."""
    function, task = cloudpickle.loads(path.read_bytes())
    path.with_suffix(".result").write_bytes(cloudpickle.dumps(function(task)))


def _after_error(job: _Job, error: BaseException) -> _Job:
    """Return a job to be done again, as its worker died; raise any other error, and that of too many deaths."""
    if not isinstance(error, BrokenProcessPool):
        error.add_note(f"in {job.task}")
        raise error
    job.deaths += 1
    if job.deaths > RETRIES:
        words = f"{job.task}: {job.deaths} worker processes died, often of a lack of memory; give fewer jobs"
        raise WorkerError(words) from error
    return job


def _begin() -> None:
    """Prepare a worker: one thread, no Ctrl-C, and an end when its parent dies."""

    def end_with_parent() -> None:
        if (parent := multiprocessing.parent_process()) is not None:
            parent.join()
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    threading.Thread(target=end_with_parent, daemon=True).start()
