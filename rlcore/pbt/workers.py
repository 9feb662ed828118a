"""The processes in which the members of a population train: this one, or worker processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection, resource_tracker
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from typing import Any, Final, Self, TypeAlias, TypeVar

import cloudpickle
import torch

from rlcore.errors import CallOrderError, SettingError, WorkerError
from rlcore.ppo.settings import whole_number

Task = TypeVar("Task")
Result = TypeVar("Result")

RETRIES: Final = 3
"""How often a task whose worker died is done again, the last time alone, so that an error names the right one."""
THREAD_LIMITS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class InlineExecutor:
    """Calls the function in this process, one task after the other.

    Call ``torch.set_num_threads(1)`` to get the bits that workers get, which have one thread each.
    """

    in_process = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

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


class _Context(SpawnContext):
    """Starts processes with ``spawn``, and knows them."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[SpawnProcess] = []

    def Process(self, *given: Any, **options: Any) -> SpawnProcess:  # type: ignore[override]  # noqa: N802
        self.started.append(SpawnProcess(*given, **options))
        return self.started[-1]


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
        self._context = _Context()
        self._pool: ProcessPoolExecutor | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._warned: dict[Any, Any] = {}

    def __enter__(self) -> Self:
        """Start no worker yet.

        :raises CallOrderError: in a worker that imports the script which started it
        """
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            raise CallOrderError(
                'each worker imports the script that started it; put what trains under: if __name__ == "__main__":'
            )
        resource_tracker.ensure_running()  # if a worker started it, that would let Ctrl-C through again
        self._folder = tempfile.TemporaryDirectory(prefix="rlcore-", ignore_cleanup_errors=True)
        return self

    def __exit__(self, *_: object) -> None:
        """End the workers, and remove their files."""
        self._end_workers()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[tuple[Task, Result]]:
        """Call ``function`` with every task, and yield the tasks with their results in the order in which they end.

        A task is taken from ``tasks`` when there is a worker for it. If a worker dies, new workers do all tasks again
        that have not ended. Warnings of the function are raised again in this process.

        :param function: with the tasks and results it must be something that cloudpickle can pickle
        :raises CallOrderError: outside the context
        :raises WorkerError: if the workers of a task died more than :data:`RETRIES` times
        :raises Exception: what the function raised, with the traceback of the worker and a note that names the task
        """
        if self._folder is None:
            raise CallOrderError("the executor has no workers outside its context; write: with executor: ...")
        jobs = (_Job(task, self._written(function, task)) for task in tasks)
        again: deque[_Job] = deque()
        running: dict[Future[None], _Job] = {}
        try:
            while True:
                self._fill(running, again, jobs)
                if not running:
                    return
                done, died = wait(running, return_when=FIRST_COMPLETED).done, list[int | None]()
                if any(isinstance(each.exception(), BrokenProcessPool) for each in done):
                    died, done = self._end_workers(), set(running)
                ended = [(running.pop(each), each.exception()) for each in list(running) if each in done]
                errors = [error for _, error in ended if error and not isinstance(error, BrokenProcessPool)]
                for job in (job for job, error in ended if error is None):
                    result, error = self._answer_to(job)
                    if error is None:
                        yield job.task, result
                    else:
                        errors.append(error)
                for error in errors:
                    raise error
                again.extend(_after_death(job, died) for job, error in ended if error is not None)
        except BaseException:
            self._end_workers()
            raise

    def _fill(self, running: dict[Future[None], _Job], again: deque[_Job], jobs: Iterator[_Job]) -> None:
        """Give tasks to workers that have none; a task that is on its last try runs alone."""
        while True:
            alone = any(job.deaths == RETRIES for job in (*again, *running.values()))
            if len(running) >= (1 if alone else self.jobs):
                return
            job = again.popleft() if again else next(jobs, None)
            if job is None:
                return
            try:
                with _starting():
                    if self._pool is None:
                        self._context = _Context()
                        self._pool = ProcessPoolExecutor(self.jobs, self._context, _begin)
                    running[self._pool.submit(_answer, job.path)] = job
            except BrokenProcessPool:  # a worker died that had no task
                again.appendleft(job)
                if running:
                    return
                self._end_workers()

    def _written(self, function: Callable[[Any], Any], task: Any) -> Path:
        """Write a task to a file. In a pipe, a worker that dies within a long message would block all others."""
        assert self._folder is not None
        handle, name = tempfile.mkstemp(dir=self._folder.name)
        with os.fdopen(handle, "wb") as file:
            cloudpickle.dump((function, task), file)
        return Path(name)

    def _answer_to(self, job: _Job) -> tuple[Any, BaseException | None]:
        """Read the result of a task and its error, which may be None."""
        answer = job.path.with_suffix(".answer")
        value, error, trace, warned = cloudpickle.loads(answer.read_bytes())
        answer.unlink()
        job.path.unlink()
        for message, category, file, line in warned:
            warnings.warn_explicit(message, category, file, line, registry=self._warned)
        if error is not None:
            error.add_note(f"in {job.task}, in a worker:\n{trace}")
        return value, error

    def _end_workers(self) -> list[int | None]:
        """Kill the workers, as files hold all that counts; the exit codes of those that had died before."""
        if self._pool is None:
            return []
        workers = [each for each in self._context.started if each.pid is not None]
        dead = [each for each in workers if connection.wait([each.sentinel], 0)]
        for worker in workers:
            worker.kill()
        self._pool.shutdown()
        for worker in workers:
            worker.join()
        self._pool = None
        # The pool itself ends the others by SIGTERM.
        return [each.exitcode for each in dead if each.exitcode not in (None, -signal.SIGTERM)]


Executor: TypeAlias = InlineExecutor | ProcessExecutor


def _after_death(job: _Job, died: list[int | None]) -> _Job:
    """
    :param died: exit codes of the workers that died
    :raises WorkerError: if too many workers of the job died
    """
    job.deaths += 1
    if job.deaths > RETRIES:
        how = f" (exit code {died[0]})" if died else ""
        memory = "exit code -9 is often a lack of memory: give fewer jobs; " if -9 in died else ""
        raise WorkerError(
            f"{job.task}: {job.deaths} worker processes died{how}, so it is not tried again; {memory}see above for "
            "what the workers wrote"
        )
    return job


@contextmanager
def _starting() -> Iterator[None]:
    """A process that is started inside has one thread and never sees Ctrl-C, which waits here until the end."""
    before = {name: os.environ.get(name) for name in THREAD_LIMITS}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if sys.platform != "win32" else None
    os.environ.update(dict.fromkeys(THREAD_LIMITS, "1"))
    try:
        yield
    finally:
        for name in THREAD_LIMITS:
            os.environ.pop(name)
        os.environ.update({name: value for name, value in before.items() if value is not None})
        if sys.platform != "win32" and mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _begin() -> None:
    """Prepare a worker: one thread, and an end when its parent dies."""
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _answer(path: Path) -> None:
    """Call the function of a file with its task; write value, error, traceback and warnings next to it."""
    value, error, trace = None, None, ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        try:
            function, task = cloudpickle.loads(path.read_bytes())
            value = function(task)
        except Exception as raised:  # noqa: BLE001 - the parent raises it
            error, trace = raised, traceback.format_exc()
    warned = [(str(each.message), each.category, each.filename, each.lineno) for each in caught]
    try:
        content = cloudpickle.dumps((value, error, trace, warned))
        if error is not None:
            cloudpickle.loads(content)
    except Exception as why:  # noqa: BLE001 - classes define how they are pickled
        kept = value if error is None else error
        text = f"a worker cannot send back a {type(kept).__name__} ({type(why).__name__}: {why}): {str(kept)[:300]}"
        content = cloudpickle.dumps((None, WorkerError(text), trace, warned))
    path.with_suffix(".answer").write_bytes(content)
