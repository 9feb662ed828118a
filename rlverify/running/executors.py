"""Where tasks run: in this process, in threads, in worker processes, or on Ray. The results are the same."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import connection, resource_tracker
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

from rlverify.records import process
from rlverify.records.process import pin_threads, send_stdout_to_stderr, stdout_sent_to_stderr

Task = TypeVar("Task")
Result = TypeVar("Result")
Submit: TypeAlias = Callable[[Callable[[Task], Result], Task], "Future[Ended[Result]]"]
ExecutorName: TypeAlias = Literal["inline", "processes", "ray"]

POLL: Final = 1.0
"""Seconds between two looks at what runs; a process that a dead worker started can keep its pipes open."""
GRACE: Final = 10.0
"""Seconds that a worker has to end before it is killed; threads that a task left running hold it up."""


@dataclass(frozen=True)
class Ended(Generic[Result]):
    """The end of a task.

    :param exit_code: of that process, negative for a signal; None if the function returned, or if it is not known
    :param reason: why there is neither result nor exit code; else empty
    """

    result: Result | None
    exit_code: int | None
    seconds: float
    reason: str = ""


Progress: TypeAlias = Callable[[int, int], None]
"""Is called with the number of tasks that have ended, and of all."""


def no_progress(_done: int, _total: int) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class Job(Generic[Task, Result]):
    """A task with the function that is called with it.

    :param function: of a module that a worker can import; must not raise
    :param note: called when the task has ended
    """

    function: Callable[[Task], Result]
    task: Task
    note: Callable[[Task, Ended[Result]], None] = lambda *_: None


class Executor(ABC):
    """Runs tasks."""

    jobs: int

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        *,
        note: Callable[[Task, Ended[Result]], None] = lambda *_: None,
    ) -> list[Ended[Result]]:
        """Call a function with each of the tasks, as `run` does."""
        return self.run([Job(function, task, note) for task in tasks])

    def run(self, jobs: Sequence[Job[Any, Any]], on_progress: Progress = no_progress) -> list[Ended[Any]]:
        """Run jobs, which are started in their order.

        :param on_progress: called first, when tasks have ended, and at least every second
        :raises KeyboardInterrupt: after the workers have been stopped
        """
        waiting = deque(range(len(jobs)))
        running: dict[Future[Ended[Any]], tuple[int, float]] = {}
        found: dict[int, Ended[Any]] = {}
        on_progress(0, len(jobs))
        with self._submitting() as submit:
            while waiting or running:
                while waiting and len(running) < self.jobs:
                    number = waiting.popleft()
                    job = jobs[number]
                    running[submit(job.function, job.task)] = number, time.monotonic()
                for future in wait(running, POLL, FIRST_COMPLETED).done:
                    number, started = running.pop(future)
                    found[number] = self._ended(future, time.monotonic() - started)
                    jobs[number].note(jobs[number].task, found[number])
                on_progress(len(found), len(jobs))
        return [found[number] for number in range(len(jobs))]

    @abstractmethod
    def _submitting(self) -> AbstractContextManager[Submit[Any, Any]]:
        """Give what starts a task; at the end, what still runs is stopped."""

    def _ended(self, future: Future[Ended[Result]], seconds: float) -> Ended[Result]:  # noqa: ARG002  # Ray needs them
        return future.result()

    def close(self) -> None:  # noqa: B027  # most executors keep nothing between maps
        """End what was started for all maps; another map starts it again."""


def _run(function: Callable[[Task], Result], task: Task) -> Ended[Result]:
    started = time.monotonic()
    return Ended(function(task), None, time.monotonic() - started)


@dataclass(frozen=True)
class InlineExecutor(Executor):
    """Runs tasks one after the other in this process, for a debugger or a profiler.

    A task that kills its process ends the whole command. A task that waits in compiled code is not ended at its time
    limit.
    """

    jobs: int = field(default=1, init=False)

    @contextmanager
    def _submitting(self) -> Iterator[Submit[Any, Any]]:
        def submit(function: Callable[[Task], Result], task: Task) -> Future[Ended[Result]]:
            future: Future[Ended[Result]] = Future()
            future.set_result(_run(function, task))
            return future

        pin_threads()
        with process.raised(), own_temporary_folder(), stdout_sent_to_stderr():
            yield submit


@dataclass(frozen=True)
class ThreadExecutor(Executor):
    """Runs tasks in threads of this process, for tasks that start a process of their own and wait for it."""

    jobs: int

    @contextmanager
    def _submitting(self) -> Iterator[Submit[Any, Any]]:
        with ThreadPoolExecutor(self.jobs) as threads:
            yield lambda function, task: threads.submit(_run, function, task)


@dataclass(frozen=True)
class ProcessExecutor(Executor):
    """Runs tasks in worker processes of this machine.

    A worker has one task at a time. So the task whose process died is known; it is not run again, and the others go on.
    What tasks leave in the folder for temporary files is removed: Stable-Baselines3, for one, leaves a folder for each
    model that learns.
    """

    jobs: int

    @contextmanager
    def _submitting(self) -> Iterator[Submit[Any, Any]]:
        resource_tracker.ensure_running()  # if a worker started it, that would let the signals through again
        threads, started, own = ThreadPoolExecutor(self.jobs), list[Worker](), threading.local()
        folder = tempfile.TemporaryDirectory(prefix="rlverify-", ignore_cleanup_errors=True)
        starting, stopped = threading.Lock(), threading.Event()

        def in_a_worker(function: Callable[[Task], Result], task: Task) -> Ended[Result]:
            worker: Worker | None = getattr(own, "worker", None)
            with starting:
                if worker is None and not stopped.is_set():
                    worker = Worker(folder.name)
                    started.append(worker)
            if worker is None:
                return Ended(None, None, 0.0, "stopped")
            ended = worker.run(function, task)
            own.worker = worker if ended.exit_code is None else None
            return ended

        with process.raised():
            try:
                yield lambda function, task: threads.submit(in_a_worker, function, task)
            except BaseException:
                with starting:
                    stopped.set()
                    for worker in started:
                        worker.terminate()
                raise
            finally:
                threads.shutdown()
                for worker in started:
                    worker.release()
                for worker in started:
                    worker.join()
                folder.cleanup()


class Worker:
    """A process that runs one task after the other."""

    def __init__(self, folder: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, folder))
        with process.held_back():
            self._process.start()
        theirs.close()

    def run(self, function: Callable[[Task], Result], task: Task) -> Ended[Result]:
        """Wait for the end of a task, or of the process."""
        started = time.monotonic()
        with suppress(BrokenPipeError):  # it has died
            self._connection.send((function, task))
        while not self._connection.poll() and self._process.is_alive():
            connection.wait([self._connection, self._process.sentinel], POLL)
        seconds = time.monotonic() - started
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

    def join(self) -> None:
        """Wait for the process to end, and kill it if it does not."""
        self._process.join(GRACE)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _work(tasks: connection.Connection, folder: str) -> None:
    """Run tasks until there are no more, with their temporary files in a folder."""
    process.allow_termination()
    send_stdout_to_stderr()
    os.environ["TMPDIR"], tempfile.tempdir = folder, folder
    pin_threads()
    threading.Thread(target=_end_with_parent, args=(folder,), daemon=True).start()
    with suppress(EOFError):
        while True:
            function, task = tasks.recv()
            tasks.send(function(task))


def _end_with_parent(folder: str) -> None:
    """End this worker as soon as its parent has ended; it would run its task to the end otherwise."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)


@contextmanager
def own_temporary_folder() -> Iterator[None]:
    """For temporary files, as tasks have it in a worker process: what they leave there is removed."""
    before, variable = tempfile.tempdir, os.environ.get("TMPDIR")
    with tempfile.TemporaryDirectory(prefix="rlverify-", ignore_cleanup_errors=True) as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        try:
            yield
        finally:
            tempfile.tempdir = before
            if variable is None:
                del os.environ["TMPDIR"]
            else:
                os.environ["TMPDIR"] = variable


def in_threads(executor: Executor) -> Executor:
    """Threads instead of worker processes, which would only wait; other executors stay."""
    return ThreadExecutor(executor.jobs) if isinstance(executor, ProcessExecutor) else executor
