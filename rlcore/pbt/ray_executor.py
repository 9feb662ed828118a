"""Members of a population that train on a Ray cluster."""

from __future__ import annotations

import os
import socket
import time
from contextlib import ExitStack, nullcontext
from typing import Any, Final, Self

from rlcore.errors import CallOrderError, WorkerError
from rlcore.pbt import interrupts
from rlcore.pbt.executors import checked_jobs
from rlcore.pbt.extra import imported
from rlcore.pbt.workers import POLL, Death, Job, OnWorkers, answered

LOST: Final = ("WorkerCrashedError", "OutOfMemoryError", "NodeDiedError", "LocalRayletDiedError", "ObjectLostError")
"""Errors of Ray that say that a worker, its node or its result was lost, so that another try may succeed."""

CONNECT_TIMEOUT: Final = 5.0
"""Seconds that the port of a cluster has to answer."""
HEAD_TIMEOUT: Final = 30.0
"""Seconds after which a head node that does not answer is lost; after 60, Ray itself ends the process with code 1."""


class RayExecutor(OnWorkers):
    """Calls the function in tasks of Ray, each with one CPU and one thread.

    Every node needs the packages that the function uses. No folder has to be shared, as tasks and results hold the
    content of the files. A task whose worker died or whose node was lost is given to Ray again, which finds another
    worker, on another node if need be. If Ray is connected already, that cluster is used and stays.

    :param jobs: how many tasks run at most; default one for each CPU that the cluster has when the context begins
    :param address: of a running cluster, as ``ray.init`` takes it (``auto`` for the one of this machine); default a
        cluster of ``jobs`` CPUs that is started on this machine and ends with the context
    :raises SettingError: if Ray is not installed, or ``jobs`` is no whole number of at least 1
    """

    def __init__(self, jobs: int | None = None, address: str | None = None) -> None:
        super().__init__()
        self._ray = imported("ray", "an executor on Ray")
        self.jobs = None if jobs is None else checked_jobs(jobs)
        self.address = address
        self._remote: Any = None
        self._is_own = False
        self._lost = tuple(getattr(self._ray.exceptions, name) for name in LOST)
        self._running: dict[Any, Job] = {}
        self._room = 0
        self._head = ""
        self._silent_since: float | None = None

    def __enter__(self) -> Self:
        """Connect.

        :raises WorkerError: if there is no cluster at the address, or none can be started
        """
        ray = self._ray
        with ExitStack() as failed:
            failed.push(self)
            if not ray.is_initialized():
                self._connect()
            self._room = self.jobs or max(1, int(ray.cluster_resources().get("CPU", 1)))
            is_client = ray.util.client.ray.is_connected()
            self._head, self._silent_since = "" if is_client else ray.get_runtime_context().gcs_address, None
            # Ray does not count the tries that its memory monitor ends; a task that does not fit would go on for ever.
            self._remote = ray.remote(num_cpus=1, max_retries=0, retry_exceptions=False)(answered)
            failed.pop_all()
        return self

    def _connect(self) -> None:
        address = "local" if self.address is None else self.address
        address = os.environ.get("RAY_ADDRESS") or address if address == "auto" else address
        is_local = address == "local"
        local = {"num_cpus": self.jobs, "include_dashboard": False} if is_local else {}
        try:
            _check_port(address)
            # Processes of a cluster that is not there yet would stay for a minute.
            with interrupts.raised_at_the_end() if is_local else nullcontext():
                self._is_own = True
                self._ray.init(address, logging_level="warning", **local)
        except (OSError, ValueError, RuntimeError) as error:
            raise WorkerError(
                f"Ray cannot be reached at address={address!r} ({error}); start a cluster there with "
                "`ray start`, or leave the address out for one on this machine"
            ) from error

    def __exit__(self, *_: object) -> None:
        """Stop what still runs, and the cluster if it was started here."""
        self._stop_running()
        self._remote = None
        if self._is_own:
            self._is_own = False
            self._ray.shutdown()

    def _has_room(self) -> bool:
        if self._remote is None:
            raise CallOrderError("the executor is not connected outside its context; write: with executor: ...")
        return len(self._running) < self._room

    def _give(self, job: Job) -> None:
        try:
            reference = self._remote.remote(job.payload)
        except self._ray.exceptions.RayError as error:
            raise WorkerError(f"{job.task}: Ray cannot start it ({_said(error)})") from error
        self._running[reference] = job

    def _has_running(self) -> bool:
        return bool(self._running)

    def _ended(self) -> list[tuple[Job, bytes | Death | WorkerError]]:
        """See the base class. If the head node is lost, that is how all jobs end that have not ended before."""
        references = list(self._running)
        ended, _ = self._ray.wait(references, num_returns=len(references), timeout=0)
        if not ended:
            ended, _ = self._ray.wait(references, num_returns=1, timeout=POLL)
        jobs = [(self._running.pop(reference), reference) for reference in ended]
        ends = [(job, self._end_of(job, reference)) for job, reference in jobs]
        lost = self._loss_of_the_head()
        return ends if lost is None else [*ends, *((job, lost) for job in self._running.values())]

    def _loss_of_the_head(self) -> WorkerError | None:
        """What to raise if the head node has not answered for :data:`HEAD_TIMEOUT`."""
        asked = time.monotonic()
        try:
            _check_port(self._head)
        except OSError as error:
            if self._silent_since is None:
                self._silent_since = asked
            if time.monotonic() - self._silent_since < HEAD_TIMEOUT:
                return None
            lost = WorkerError(
                f"the head node of the Ray cluster at {self._head} does not answer any more ({error}); start one with "
                "`ray start --head`, and train again, which goes on after the last turn"
            )
            lost.__cause__ = error
            return lost
        self._silent_since = None
        return None

    def _end_of(self, job: Job, reference: Any) -> bytes | Death | WorkerError:
        try:
            answer: bytes = self._ray.get(reference)
        except self._lost as error:
            advice = f"OutOfMemoryError is a lack of memory: give fewer jobs; Ray said last: {_said(error)}"
            return Death(type(error).__name__, advice)
        except self._ray.exceptions.RayError as error:
            failed = WorkerError(f"{job.task}: Ray could not do it ({_said(error)})")
            failed.__cause__ = error
            return failed
        return answer

    def _stop_running(self) -> None:
        running, self._running = self._running, {}
        for reference in running:
            self._ray.cancel(reference, force=True)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:300]}"


def _check_port(address: str) -> None:
    """Connect to an address of the form ``HOST:PORT``, for which Ray itself would try for minutes.

    :raises OSError: if nothing answers there
    """
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "://" not in host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT).close()
