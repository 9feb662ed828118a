"""Runs tasks on Ray: an actor for each task that runs at the same time, with a worker process below it.

The worker process is that of `rlverify.running.pool`. So crashes, time limits, threads and temporary files are as on
one machine, and so are the results. Ray only says on which node a worker process runs.
"""

from __future__ import annotations

import pickle
import shutil
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from typing import Any, Final, Generic

import ray
from ray.exceptions import RayError, RayTaskError

from rlverify.records import interrupts
from rlverify.records.errors import HarnessError, UsageError
from rlverify.running.executor import Executor, Note, OnWait, Result, Task
from rlverify.running.pool import POLL, Ended, Worker
from rlverify.running.progress_file import ELSEWHERE
from rlverify.running.run_progress import task_ended, task_started

MOST_TRIES: Final = 3
"""How often a task is started if the node or the actor that runs it is lost."""


class _Slot(Generic[Task, Result]):
    """What an actor does: keeps a worker process, and gives it one task after the other."""

    def __init__(self) -> None:
        resource_tracker.ensure_running()
        self._folder = tempfile.mkdtemp(prefix="rlverify-")
        self._worker: Worker[Task, Result] | None = None

    def run(self, path: list[str], pickled: bytes) -> Ended[Result]:
        """What became of a task.

        :param path: that modules are looked for in
        :param pickled: function and task; what unpickles them needs the path
        """
        sys.path[:] = path
        function, task = pickle.loads(pickled)  # noqa: S301 - of the process that started this actor
        if self._worker is None:
            with interrupts.held_back(), _no_main_module():
                self._worker = Worker(function, task, self._folder)
        else:
            self._worker.start(task)
        while not self._worker.has_ended:
            wait(self._worker.signals, POLL)
        ended = self._worker.end()
        if ended.exit_code is not None:
            self._worker = None
        return ended

    def end(self) -> None:
        """Stop the worker process, and remove what tasks left in the folder for temporary files."""
        if self._worker is not None:
            self._worker.terminate()
            self._worker.join()
        shutil.rmtree(self._folder, ignore_errors=True)


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


@dataclass
class _StartedTask(Generic[Task]):
    """A task that an actor has, and where it is in the order of the tasks."""

    slot: Any
    number: int
    tries: int
    started: float


class RayExecutor(Executor):
    """Runs tasks on the nodes of a Ray cluster.

    A task whose own process dies is not run again, as with processes. If the actor or the node above it is lost, the
    task is started again elsewhere, at most `MOST_TRIES` times in all; each task is noted once.

    Nodes need the same project and the same packages at the same paths, as on a shared file system.

    :param jobs: how many tasks at the same time; None for one for each CPU of the cluster
    :param address: as ``ray.init`` takes it; empty for a cluster of this machine, which ends with the executor
    :raises UsageError: if no cluster can be reached
    """

    def __init__(self, jobs: int | None = None, address: str = "") -> None:
        self._address = address
        self._wanted = jobs
        self._connect()
        resources: dict[str, float] = ray.cluster_resources()
        self.jobs = jobs or max(1, int(resources.get("CPU", 1)))

    def _connect(self) -> None:
        if ray.is_initialized():
            return
        local: dict[str, Any] = {} if self._address else {"num_cpus": self._wanted, "include_dashboard": False}
        try:
            ray.init(self._address or "local", log_to_driver=True, configure_logging=False, **local)
        except (ConnectionError, RuntimeError, ValueError) as error:
            where = f"at {self._address}" if self._address else "on this machine"
            reason = " ".join(str(error).split())
            advice = "start one with `ray start --head`"
            raise UsageError(f"no Ray cluster could be used {where}: {reason:.300}; {advice}") from error

    def _map(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], note: Note[Task, Result], on_wait: OnWait
    ) -> list[Ended[Result]]:
        self._connect()
        actor = ray.remote(num_cpus=1, max_restarts=0)(_Slot)
        waiting = deque((number, 1) for number in range(len(tasks)))
        found: dict[int, Ended[Result]] = {}
        busy: dict[Any, _StartedTask[Task]] = {}
        idle: list[Any] = []
        every: list[Any] = []
        try:
            with interrupts.raised():
                while waiting or busy:
                    while waiting and len(busy) < self.jobs:
                        number, tries = waiting.popleft()
                        if not idle:
                            every.append(actor.remote())
                            idle.append(every[-1])
                        slot = idle.pop()
                        answer = slot.run.remote(list(sys.path), pickle.dumps((function, tasks[number])))
                        busy[answer] = _StartedTask(slot, number, tries, time.monotonic())
                        task_started(tasks[number], ELSEWHERE)
                    for answer in ray.wait(list(busy), timeout=POLL)[0]:
                        given = busy.pop(answer)
                        task_ended(tasks[given.number], ELSEWHERE)
                        ended: Ended[Result] | None = _ended(answer, given)
                        if ended is None:
                            waiting.append((given.number, given.tries + 1))
                            continue
                        if not ended.reason:
                            idle.append(given.slot)
                        found[given.number] = ended
                        note(tasks[given.number], ended)
                    on_wait()
        finally:
            for given in busy.values():
                task_ended(tasks[given.number], ELSEWHERE)
            _end(idle, every)
        return [found[number] for number in range(len(tasks))]

    def close(self) -> None:
        """Leave the cluster; one of this machine ends."""
        ray.shutdown()


def _ended(answer: Any, given: _StartedTask[Task]) -> Ended[Any] | None:
    """What became of a task; None if it has to be started again."""
    try:
        ended: Ended[Any] = ray.get(answer)
    except RayTaskError as error:
        advice = "nodes need the same project and packages at the same paths"
        raise HarnessError(f"a worker on Ray could not run a task: {error.cause!r:.300}; {advice}") from error
    except RayError as error:
        if given.tries < MOST_TRIES:
            return None
        lost = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        reason = f"the node or the actor of this run was lost {given.tries} times; the last time: {lost}"
        return Ended(None, None, time.monotonic() - given.started, reason)
    return ended


def _end(idle: Sequence[Any], every: Sequence[Any]) -> None:
    """Let actors without a task end their workers, and kill the others, whose workers end with them."""
    with suppress(RayError):
        ray.get([slot.end.remote() for slot in idle], timeout=POLL * 5)
    for slot in every:
        with suppress(RayError):
            ray.kill(slot)
