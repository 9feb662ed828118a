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
from abc import ABC, abstractmethod
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


@dataclass(frozen=True)
class Death:
    """How a worker died that had a job, and what can be done about it; for an error."""

    how: str
    advice: str


@dataclass
class Job:
    """A task, and how the workers that had it died."""

    task: Any
    payload: bytes
    deaths: list[Death] = field(default_factory=list)

    def require_another_try(self) -> None:
        """
        :raises WorkerError: if its workers died too often
        """
        if len(self.deaths) > RETRIES:
            how = ", ".join(each.how for each in self.deaths)
            raise WorkerError(
                f"{self.task}: {len(self.deaths)} worker processes died ({how}), so it is not tried again; "
                f"{self.deaths[-1].advice}"
            )


class _FirstError:
    """Keeps the first error that is raised inside, so that what has ended can be yielded before it is raised."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def __enter__(self) -> None:
        """Nothing has to begin."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if not isinstance(error, Exception):
            return False
        self.error = self.error or error
        return True


class OnWorkers(ABC):
    """Gives jobs to workers, and a job whose worker died to another one; a subclass knows the workers."""

    in_process = False

    def __init__(self) -> None:
        self._answers = Answers()
        self._again: deque[Job] = deque()
        self._mapping: object = None
        """Which call of :meth:`map` has the workers."""

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[tuple[Task, Result]]:
        """See :meth:`Executor.map`. It takes the workers from an earlier call that has not come to its end.

        :raises CallOrderError: outside the context, or if a later call has taken the workers
        """
        jobs = (Job(task, cloudpickle.dumps((function, task))) for task in tasks)
        self._mapping = own = object()
        first = _FirstError()
        try:
            self._drop_jobs()
            self._fill(jobs)
            while first.error is None and self._has_running():
                answers = self._answers_in(first)
                if first.error is None:
                    with first:
                        self._fill(jobs)
                for task, answer in answers:
                    value = None
                    with first:
                        value = (self._answers.value_of(answer),)
                    if value is not None:
                        yield task, value[0]
                        if self._mapping is not own:
                            raise CallOrderError("the executor has begun another map, which ended this one")
            if first.error is not None:
                raise first.error
        finally:
            if self._mapping is own:
                self._drop_jobs()

    def _drop_jobs(self) -> None:
        """Nothing of what was given to the workers may reach a later call."""
        self._again.clear()
        self._stop_running()

    def _answers_in(self, first: _FirstError) -> list[tuple[Any, bytes]]:
        """The tasks that have ended, with their answers; the job of a worker that died is tried again."""
        answers = []
        for job, end in self._ended():
            with first:
                if isinstance(end, WorkerError):
                    raise end
                if isinstance(end, Death):
                    job.deaths.append(end)
                    job.require_another_try()
                    self._again.append(job)
                else:
                    answers.append((job.task, end))
        return answers

    def _fill(self, jobs: Iterator[Job]) -> None:
        """Give the workers jobs, while there are jobs and room."""
        while self._has_room():
            job = self._again.popleft() if self._again else next(jobs, None)
            if job is None:
                return
            self._give(job)

    @abstractmethod
    def _has_room(self) -> bool:
        """Whether another job can be given.

        :raises CallOrderError: outside the context
        """

    @abstractmethod
    def _give(self, job: Job) -> None:
        """Start a job.

        :raises WorkerError: if it cannot be started
        """

    @abstractmethod
    def _has_running(self) -> bool:
        """Whether a worker has a job."""

    @abstractmethod
    def _ended(self) -> list[tuple[Job, bytes | Death | WorkerError]]:
        """The jobs that have ended, after a wait of at most :data:`POLL`, each with its answer or why there is none."""

    @abstractmethod
    def _stop_running(self) -> None:
        """Stop the workers that have a job, and forget the jobs."""


class _Worker:
    """A process, and the job that it has."""

    def __init__(self, folder: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, folder), name="rlcore-worker")
        self._is_ready = False
        self.job: Job | None = None
        with _one_thread():
            self._process.start()
        theirs.close()

    def give(self, job: Job) -> None:
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

    def death(self) -> Death:
        """How it died."""
        self.join()
        code, advice = self._process.exitcode, "see above for what the workers wrote"
        if code == -9:
            advice = f"exit code -9 is often a lack of memory: give fewer jobs; {advice}"
        return Death(f"exit code {code}", advice)

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


class ProcessExecutor(OnWorkers):
    """Calls the function in worker processes of this machine, each with one task at a time and one thread.

    The workers are started with ``spawn``, so a script needs ``if __name__ == "__main__":`` around what it runs. They
    import torch, which takes seconds, once; then they are there until the context ends. Ctrl-C reaches this process
    only, which stops them. If this process dies, they end themselves.

    :param jobs: how many workers
    :raises SettingError: if ``jobs`` is no whole number of at least 1
    """

    def __init__(self, jobs: int) -> None:
        super().__init__()
        self.jobs = checked_jobs(jobs)
        self._workers: list[_Worker] = []
        self._room: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        """Start no worker yet.

        :raises CallOrderError: in a worker that imports the script which started it
        """
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            raise CallOrderError(
                "a worker process imports the script that started it, and this one starts workers whenever it is "
                'imported; put what trains under: if __name__ == "__main__":'
            )
        resource_tracker.ensure_running()  # if a worker started it, that would let the signals through again
        self._room = tempfile.TemporaryDirectory(prefix="rlcore-", ignore_cleanup_errors=True)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the workers, and remove their temporary files."""
        self._end(self._workers)
        if self._room is not None:
            self._room.cleanup()
            self._room = None

    def _has_room(self) -> bool:
        if self._room is None:
            raise CallOrderError("the executor has no workers outside its context; write: with executor: ...")
        return len(self._busy()) < self.jobs

    def _has_running(self) -> bool:
        return bool(self._busy())

    def _busy(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.job is not None]

    def _give(self, job: Job) -> None:
        # An idle worker says nothing, so one that has something has died: not of this job.
        self._end([worker for worker in self._workers if worker.job is None and worker.has_something])
        idle = [worker for worker in self._workers if worker.job is None]
        (idle[0] if idle else self._new_worker()).give(job)

    def _new_worker(self) -> _Worker:
        assert self._room is not None
        with _signals_held_back():
            self._workers.append(_Worker(self._room.name))
        return self._workers[-1]

    def _ended(self) -> list[tuple[Job, bytes | Death | WorkerError]]:
        busy = self._busy()
        wait([each for worker in busy for each in worker.signals], POLL)
        ended: list[tuple[Job, bytes | Death | WorkerError]] = []
        for worker in [each for each in busy if each.has_something]:
            job = worker.job
            assert job is not None
            try:
                answer = worker.answer()
            except EOFError:
                self._workers.remove(worker)
                ended.append((job, worker.death()))
                continue
            if answer is not None:
                worker.job = None
                ended.append((job, answer))
        return ended

    def _stop_running(self) -> None:
        self._end(self._busy())

    def _end(self, workers: list[_Worker]) -> None:
        """Stop workers; if that is interrupted they are still known, and are stopped when the context ends."""
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join()
        self._workers = [worker for worker in self._workers if worker not in workers]


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
