"""Runs tasks on the nodes of a Ray cluster: Ray chooses the node and tries again if it is lost.

The task itself runs in a worker process below that of Ray. So crashes, time limits, threads and temporary files are as
on one machine, and so are the results.
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from multiprocessing import resource_tracker
from typing import Any, Final

from rlverify.records import process
from rlverify.records.errors import HarnessError, UsageError
from rlverify.running.executors import Ended, Executor, Result, Submit, Task, Worker

# Ray reads these when it is imported. They keep it from printing advice and colours, from leaving out lines, and from
# reporting its use.
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
os.environ.setdefault("RAY_COLOR_PREFIX", "0")
os.environ.setdefault("RAY_DEDUP_LOGS", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
try:
    import ray
    from ray.exceptions import RayError, RayTaskError
except ModuleNotFoundError as error:
    raise UsageError("Ray is not installed, so no task was run; run `pip install 'rlverify[ray]'`") from error

MOST_TRIES: Final = 3
"""How often a task is started if the node or the process of Ray that runs it is lost."""
CONNECT_TIMEOUT: Final = 5.0
"""Seconds that the port of a cluster has to answer."""
_workers: list[Worker] = []
"""The worker process below this process of Ray, once it has had a task."""


class RayExecutor(Executor):
    """Runs tasks on the nodes of a Ray cluster.

    A task whose own process dies is not run again, as with processes. Nodes need the same project and the same packages
    at the same paths, as on a shared file system.

    :param jobs: how many tasks at the same time; None for one for each CPU of the cluster
    :param address: as ``ray.init`` takes it; empty for a cluster of this machine, which ends with the executor
    :raises UsageError: if no cluster can be reached
    """

    def __init__(self, jobs: int | None = None, address: str = "") -> None:
        self._address, self._wanted = address, jobs
        self._connect()
        resources: dict[str, float] = ray.cluster_resources()
        self.jobs = jobs or max(1, int(resources.get("CPU", 1)))

    def _connect(self) -> None:
        if ray.is_initialized():
            return
        local: dict[str, Any] = {} if self._address else {"num_cpus": self._wanted, "include_dashboard": False}
        try:
            _check_port(os.environ.get("RAY_ADDRESS", "") if self._address == "auto" else self._address)
            # Processes of a cluster that is not there yet would stay for a minute.
            with nullcontext() if self._address else process.raised_at_the_end():
                ray.init(self._address or "local", log_to_driver=True, configure_logging=False, **local)
        except (OSError, RuntimeError, ValueError) as error:
            where = f"at {self._address}" if self._address else "on this machine"
            reason = " ".join(str(error).split())
            advice = "start one with `ray start --head`"
            raise UsageError(f"no Ray cluster could be used {where}: {reason:.300}; {advice}") from error

    @contextmanager
    def _submitting(self) -> Iterator[Submit[Any, Any]]:
        self._connect()
        remote: Any = ray.remote(num_cpus=1, max_retries=MOST_TRIES - 1)(_run_on_a_node)
        given: list[Any] = []

        def submit(function: Callable[[Task], Result], task: Task) -> Future[Ended[Result]]:
            given.append(remote.remote(list(sys.path), pickle.dumps((function, task))))
            future: Future[Ended[Result]] = given[-1].future()
            return future

        with process.raised():
            try:
                yield submit
            except BaseException:
                for reference in given:
                    ray.cancel(reference, force=True)
                raise

    def _ended(self, future: Future[Ended[Result]], seconds: float) -> Ended[Result]:
        try:
            return future.result()
        except RayTaskError as error:
            advice = "nodes need the same project and packages at the same paths"
            raise HarnessError(f"a worker on Ray could not run a task: {error.cause!r:.300}; {advice}") from error
        except RayError as error:
            words = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            return Ended(None, None, seconds, f"Ray lost this run {MOST_TRIES} times; the last time: {words}")

    def close(self) -> None:
        """Leave the cluster; one of this machine ends."""
        ray.shutdown()


def _run_on_a_node(path: list[str], pickled: bytes) -> Ended[Any]:
    """Run a task in the worker process below this process of Ray."""
    sys.path[:] = path
    function, task = pickle.loads(pickled)  # noqa: S301 - of the process that started the command
    if not _workers:
        resource_tracker.ensure_running()
        with _no_main_module():
            _workers.append(Worker(tempfile.mkdtemp(prefix="rlverify-")))
    ended = _workers[0].run(function, task)
    if ended.exit_code is not None:
        _workers.clear()
    return ended


@contextmanager
def _no_main_module() -> Iterator[None]:
    """Keep a spawned process from importing the script of Ray's worker, which it does not need."""
    main = sys.modules["__main__"]
    before = main.__dict__.pop("__file__", None)
    try:
        yield
    finally:
        if before is not None:
            main.__file__ = before


def _check_port(address: str) -> None:
    """Connect to an address of the form ``HOST:PORT``, for which Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "://" not in host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT).close()
