"""Members of a population that train in worker processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Final, Self

from rlcore.errors import CallOrderError, WorkerError
from rlcore.pbt import interrupts
from rlcore.pbt.executors import checked_jobs
from rlcore.pbt.workers import POLL, Death, Job, OnWorkers, answered

THREAD_LIMITS: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
GRACE: Final = 10.0
"""Seconds that a worker has to end before it is killed."""
_READY: Final = b"ready"


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
        with interrupts.held_back():
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
