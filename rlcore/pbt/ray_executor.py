"""Members of a population that train on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

import cloudpickle

from rlcore.errors import CallOrderError, WorkerError
from rlcore.pbt.executors import POLL, RETRIES, Answers, Result, Task, answered, checked_jobs
from rlcore.pbt.extra import imported


class RayExecutor:
    """Calls the function in tasks of Ray, each with one CPU and one thread.

    Every node needs the packages that the function uses. No folder has to be shared, as tasks and results hold the
    content of the files. Ray gives a task to another worker, on another node if need be, when its worker dies or its
    node is lost. If Ray is connected already, that cluster is used and stays.

    :param jobs: how many tasks run at most; default one for each CPU
    :param address: of a running cluster, as ``ray.init`` takes it (``auto`` for the one of this machine); default a
        cluster of ``jobs`` CPUs that is started on this machine and ends with the context
    :raises SettingError: if Ray is not installed, or ``jobs`` is no whole number of at least 1
    """

    in_process = False

    def __init__(self, jobs: int | None = None, address: str | None = None) -> None:
        self._ray = imported("ray", "an executor on Ray")
        self.jobs = None if jobs is None else checked_jobs(jobs)
        self.address = address
        self._remote: Any = None
        self._is_own = False
        self._running: dict[Any, Any] = {}
        self._answers = Answers()

    def __enter__(self) -> Self:
        """Connect.

        :raises WorkerError: if there is no cluster at the address, or none can be started
        """
        ray = self._ray
        if not ray.is_initialized():
            local = {"address": "local", "num_cpus": self.jobs, "include_dashboard": False}
            try:
                ray.init(logging_level="warning", **(local if self.address is None else {"address": self.address}))
            except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
                raise WorkerError(
                    f"Ray cannot be reached at address={self.address!r} ({error}); start a cluster there with "
                    "`ray start`, or leave the address out for one on this machine"
                ) from error
            self._is_own = True
        self._remote = ray.remote(num_cpus=1, max_retries=RETRIES, retry_exceptions=False)(answered)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop what still runs, and the cluster if it was started here."""
        running, self._running = self._running, {}
        for reference in running:
            self._ray.cancel(reference, force=True)
        self._remote = None
        if self._is_own:
            self._is_own = False
            self._ray.shutdown()

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[tuple[Task, Result]]:
        """See :meth:`rlcore.pbt.executors.Executor.map`."""
        if self._remote is None:
            raise CallOrderError("the executor is not connected outside its context; write: with executor: ...")
        left = iter(tasks)
        self._fill(function, left)
        while self._running:
            ended, _ = self._ray.wait(list(self._running), num_returns=1, timeout=POLL)
            for reference in ended:
                task = self._running.pop(reference)
                answer = self._answer(task, reference)
                self._fill(function, left)
                yield task, self._answers.value_of(answer)

    def _fill(self, function: Callable[[Task], Result], left: Iterator[Task]) -> None:
        """Start tasks while there is room for them."""
        room = self.jobs or max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        while len(self._running) < room:
            try:
                task = next(left)
            except StopIteration:
                return
            self._running[self._remote.remote(cloudpickle.dumps((function, task)))] = task

    def _answer(self, task: object, reference: Any) -> bytes:
        try:
            answer: bytes = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            raise WorkerError(
                f"{task}: Ray could not do it, after {RETRIES} more tries where a worker or node was lost "
                f"({type(error).__name__}: {str(error)[:300]})"
            ) from error
        return answer
