"""Where the members of a population train: in this process, in worker processes, or on a Ray cluster."""

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
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, Final, Protocol, Self, TypeVar

import cloudpickle
import torch

from rlcore.errors import CallOrderError, SettingError, WorkerError
from rlcore.ppo.arguments import whole_number

Task = TypeVar("Task")
Result = TypeVar("Result")

RETRIES: Final = 3
"""How often a task whose worker died is given to a new worker."""
THREAD_LIMITS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
POLL: Final = 1.0
"""Seconds between two looks at the workers; a process that a dead worker started can keep its pipes open."""
GRACE: Final = 10.0
"""Seconds that a worker has to end before it is killed."""
_READY: Final = b"ready"


class Executor(Protocol):
    """Calls a function with tasks, somewhere. Enter it as a context manager first; the workers end with the context.

    :param in_process: whether the function runs in this process, so that it can use what lives here
    """

    in_process: bool

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[tuple[Task, Result]]:
        """Call ``function`` with every task, and yield the tasks with their results in the order in which they end.

        A task is taken from ``tasks`` when there is a worker for it. A task whose worker died is given to a new worker,
        at most :data:`RETRIES` times. Warnings of the function are raised again in this process.

        :param function: with the tasks and results it must be something that cloudpickle can pickle, unless
            ``in_process``
        :raises WorkerError: if a task's workers died too often
        :raises Exception: what the function raised, with a note that has the traceback of the worker
        """
        ...


class InlineExecutor:
    """Calls the function in this process, one task after the other.

    It leaves the number of threads as it is. The executors with workers give every worker one thread. Sums over several
    threads can have other bits, so call ``torch.set_num_threads(1)`` to get the same bits from all executors.
    """

    in_process = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing has to end."""

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[tuple[Task, Result]]:
        """See :meth:`Executor.map`."""
        for task in tasks:
            yield task, function(task)


@dataclass(frozen=True)
class _Report:
    """What a worker answers: the value of the function, or its error with the traceback."""

    value: Any = None
    error: BaseException | None = None
    trace: str = ""
    warned: tuple[tuple[str, type[Warning], str, int], ...] = ()


def answered(payload: bytes) -> bytes:
    """Call a pickled function with its pickled task, on one thread, and pickle the report."""
    torch.set_num_threads(1)
    value, error, trace = None, None, ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        try:
            function, task = cloudpickle.loads(payload)
            value = function(task)
        except (Exception, KeyboardInterrupt) as raised:  # noqa: BLE001 - the parent raises whatever it is
            error, trace = raised, traceback.format_exc()
    warned = tuple((str(each.message), each.category, each.filename, each.lineno) for each in caught)
    return _pickled(_Report(value, error, trace, warned))


def _pickled(report: _Report) -> bytes:
    try:
        content: bytes = cloudpickle.dumps(report)
        if report.error is not None:
            cloudpickle.loads(content)
    except Exception as error:  # noqa: BLE001 - classes define how they are pickled
        why = f"{type(error).__name__}: {error}"
        said = report.error if report.error is not None else report.value
        text = f"a worker cannot send back a {type(said).__name__} ({why}): {str(said)[:300]}"
        return cloudpickle.dumps(_Report(error=WorkerError(text), trace=report.trace))  # type: ignore[no-any-return]
    return content


class Answers:
    """Unpacks reports; remembers which warnings were shown."""

    def __init__(self) -> None:
        self._shown: dict[Any, Any] = {}

    def value_of(self, answer: bytes) -> Any:
        """
        :raises Exception: what the function raised
        """
        report: _Report = cloudpickle.loads(answer)
        for message, category, filename, line in report.warned:
            warnings.warn_explicit(message, category, filename, line, registry=self._shown)
        if report.error is not None:
            if report.trace:
                report.error.add_note(f"in a worker:\n{report.trace}")
            raise report.error
        return report.value


@dataclass
class _Job:
    """A task, and how the workers that had it died."""

    task: Any
    payload: bytes
    deaths: list[str] = field(default_factory=list)

    def require_another_try(self) -> None:
        """
        :raises WorkerError: if its workers died too often
        """
        if len(self.deaths) > RETRIES:
            raise WorkerError(
                f"{self.task}: {len(self.deaths)} worker processes died ({', '.join(self.deaths)}), so it is not tried "
                "again; exit code -9 is often a lack of memory: give fewer jobs; see above for what the workers wrote"
            )


class _Worker:
    """A process, and the job that it has."""

    def __init__(self, folder: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, folder), name="rlcore-worker")
        self._is_ready = False
        self.job: _Job | None = None
        with _one_thread():
            self._process.start()
        theirs.close()

    def give(self, job: _Job) -> None:
        """Give it a job; a process that is still starting gets it later, as a full pipe would block."""
        self.job = job
        if self._is_ready:
            with suppress(OSError):  # it has died, which `answer` reports
                self._connection.send_bytes(job.payload)

    @property
    def signals(self) -> list[Connection | int]:
        """What is ready when :meth:`answer` should be asked."""
        return [self._connection, self._process.sentinel]

    @property
    def has_something(self) -> bool:
        """Whether it answered, or died."""
        return self._connection.poll() or not self._process.is_alive()

    def answer(self) -> bytes | None:
        """The report on its job, or None if it only says that it is ready.

        :raises EOFError: if the process died
        """
        try:
            if not self._connection.poll():
                raise EOFError
            content = self._connection.recv_bytes()
        except OSError as error:
            raise EOFError from error
        if self._is_ready:
            return content
        self._is_ready = True
        if self.job is not None:
            self.give(self.job)
        return None

    def how_it_died(self) -> str:
        """For an error."""
        self.join()
        return f"exit code {self._process.exitcode}"

    def terminate(self) -> None:
        """Stop the process, whatever it does."""
        self._process.terminate()
        self._connection.close()

    def join(self) -> None:
        """Wait for the process to end, and kill it if it does not."""
        self._process.join(GRACE)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


class ProcessExecutor:
    """Calls the function in worker processes of this machine, each with one task at a time and one thread.

    The workers are started with ``spawn``, so a script needs ``if __name__ == "__main__":`` around what it runs. They
    import torch, which takes seconds, once; then they are there until the context ends. Ctrl-C reaches this process
    only, which stops them. If this process dies, they end themselves.

    :param jobs: how many workers
    :raises SettingError: if ``jobs`` is no whole number of at least 1
    """

    in_process = False

    def __init__(self, jobs: int) -> None:
        self.jobs = checked_jobs(jobs)
        self._workers: list[_Worker] = []
        self._room: tempfile.TemporaryDirectory[str] | None = None
        self._answers = Answers()

    def __enter__(self) -> Self:
        resource_tracker.ensure_running()  # if a worker started it, that would let the signals through again
        self._room = tempfile.TemporaryDirectory(prefix="rlcore-", ignore_cleanup_errors=True)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the workers, and remove their temporary files."""
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join()
        if self._room is not None:
            self._room.cleanup()
            self._room = None

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[tuple[Task, Result]]:
        """See :meth:`Executor.map`."""
        jobs = (_Job(task, cloudpickle.dumps((function, task))) for task in tasks)
        again: deque[_Job] = deque()
        self._fill(again, jobs)
        while busy := [worker for worker in self._workers if worker.job is not None]:
            wait([each for worker in busy for each in worker.signals], POLL)
            for worker in [each for each in busy if each.has_something]:
                job = worker.job
                assert job is not None
                answer = self._answer(worker, again)
                self._fill(again, jobs)
                if answer is not None:
                    yield job.task, self._answers.value_of(answer)

    def _fill(self, again: deque[_Job], jobs: Iterator[_Job]) -> None:
        """Give every worker a job that has none, while there are jobs."""
        while sum(worker.job is not None for worker in self._workers) < self.jobs:
            job = again.popleft() if again else next(jobs, None)
            if job is None:
                return
            self._idle_worker().give(job)

    def _idle_worker(self) -> _Worker:
        for worker in self._workers:
            if worker.job is None:
                return worker
        if self._room is None:
            raise CallOrderError("the executor has no workers outside its context; write: with executor: ...")
        with _signals_held_back():
            self._workers.append(_Worker(self._room.name))
        return self._workers[-1]

    def _answer(self, worker: _Worker, again: deque[_Job]) -> bytes | None:
        """The report, or None; the job of a worker that died is put into ``again``."""
        job = worker.job
        assert job is not None
        try:
            answer = worker.answer()
        except EOFError:
            self._workers.remove(worker)
            job.deaths.append(worker.how_it_died())
            job.require_another_try()
            again.append(job)
            return None
        if answer is not None:
            worker.job = None
        return answer


def _work(connection: Connection, folder: str) -> None:
    """Run jobs until there are no more, with their temporary files in a folder."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    os.environ["TMPDIR"], tempfile.tempdir = folder, folder
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, BrokenPipeError):
        connection.send_bytes(_READY)
        while True:
            connection.send_bytes(answered(connection.recv_bytes()))


def _end_with_parent() -> None:
    """Without its parent, a worker would run its task to the end."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def _signals_held_back() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until the end; a process that is started inside never sees Ctrl-C."""
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _one_thread() -> Iterator[None]:
    """A process that is started inside has one thread; libraries read these variables when they are imported."""
    before = {name: os.environ.get(name) for name in THREAD_LIMITS}
    os.environ.update(dict.fromkeys(THREAD_LIMITS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def checked_jobs(jobs: object) -> int:
    """
    :raises SettingError: if it is no whole number of at least 1
    """
    number = whole_number("jobs", jobs)
    if number < 1:
        raise SettingError("jobs", f"jobs={jobs!r} leaves no worker; give at least 1")
    return number
