"""Runs tasks on Ray: an actor for each task that runs at the same time, with a worker process below it.

The worker process is that of `rlverify.running.pool`. So crashes, time limits, threads and temporary files are as on
one machine, and so are the results. Ray only says on which node a worker process runs.
"""

from __future__ import annotations

import os
import pickle
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from multiprocessing import Pipe, resource_tracker
from multiprocessing.connection import wait
from typing import Any, Final, Generic

import ray
from ray.exceptions import RayError, RayTaskError

from rlverify.records import interrupts
from rlverify.records.errors import HarnessError, UsageError
from rlverify.running.executor import Executor, Note, OnWait, Result, Task
from rlverify.running.pool import POLL, Ended, Worker

MOST_TRIES: Final = 3
"""How often a task is started if the node or the actor that runs it is lost."""
CONNECT_TIMEOUT: Final = 5.0
"""Seconds that the port of a cluster has to answer."""
HEAD_TIMEOUT: Final = 30.0
"""Seconds after which a head node that does not answer is lost; after 60, Ray itself ends the process with code 1."""


class _Slot(Generic[Task, Result]):
    """What an actor does: keeps a worker process, and gives it one task after the other."""

    def __init__(self) -> None:
        resource_tracker.ensure_running()
        self._has_task = threading.Lock()
        self._told_to_end, self._end = Pipe(duplex=False)
        self._folder = ""
        self._worker: Worker[Task, Result] | None = None

    def ready(self) -> None:
        """Answer, which shows that the actor has been placed and lives."""

    def run(self, path: list[str], pickled: bytes) -> Ended[Result]:
        """What became of a task.

        :param path: that modules are looked for in
        :param pickled: function and task; what unpickles them needs the path
        """
        sys.path[:] = path
        function, task = pickle.loads(pickled)  # noqa: S301 - of the process that started this actor
        with self._has_task:
            if self._worker is None:
                self._folder = self._folder or tempfile.mkdtemp(prefix="rlverify-")
                with interrupts.held_back(), _no_main_module():
                    self._worker = Worker(function, task, self._folder)
            else:
                self._worker.start(task)
            while not self._worker.has_ended:
                wait([*self._worker.signals, self._told_to_end], POLL)
                if self._told_to_end.poll():
                    self._worker.terminate()
                    self._worker.join()
                    raise RuntimeError("this task was stopped")
            ended = self._worker.end()
            if ended.exit_code is not None:
                self._worker = None
            return ended

    def end(self) -> None:
        """Stop the worker process with its task, and remove what tasks left in the folder for temporary files."""
        self._end.send(None)
        with self._has_task:
            if self._worker is not None:
                self._worker.terminate()
                self._worker.join()
            if self._folder:
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


class _Slots(Generic[Task]):
    """The actors of a map; all but the starting ones can be given tasks.

    An actor that was never placed holds no task, so the others go on without it.

    :param most: how many at the same time
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._actor = ray.remote(num_cpus=1, max_restarts=0, concurrency_groups={"end": 1})(_Slot)
        self._starting: dict[Any, Any] = {}
        self._started: list[Any] = []
        self._ending: dict[Any, Any] = {}
        self._failed = 0
        self._failure = ""
        self.busy: dict[Any, _StartedTask[Task]] = {}

    def start(self, wanted: int) -> None:
        """Start actors, or kill starting ones, so that each task that waits has one if there is room.

        :raises HarnessError: if there is no actor, as each that was started died at once
        """
        wanted = min(wanted, self._most - len(self.busy))
        if self.can_start:
            while len(self._starting) < wanted:
                slot = self._actor.remote()
                self._starting[slot.ready.remote()] = slot
        elif not self.busy and not self._starting:
            advice = "nodes need the same project and packages at the same paths"
            raise HarnessError(f"no actor could be started on Ray: {self._failure}; {advice}")
        for answer in [*self._starting][max(wanted, 0) :]:
            _kill(self._starting.pop(answer))

    @property
    def can_start(self) -> bool:
        """Whether a new actor may live: not all that were started last died at once."""
        return self._failed < MOST_TRIES * self._most

    def answers(self) -> list[Any]:
        """Answers that have come, after at most a second."""
        return list(ray.wait([*self._starting, *self.busy, *self._ending], timeout=POLL)[0])

    def free(self, answer: Any) -> Any | None:
        """The actor that started, if the answer, of no task, is of one."""
        if answer in self._ending:
            _kill(self._ending.pop(answer))
            return None
        slot = self._starting.pop(answer)
        try:
            ray.get(answer)
        except RayError as error:
            self._failed += 1
            self._failure = _words(error)
            _kill(slot)
            return None
        self._failed = 0
        self._started.append(slot)
        return slot

    def give(self, slot: Any, number: int, tries: int, pickled: bytes) -> None:
        """Give an actor a task."""
        answer = slot.run.remote(list(sys.path), pickled)
        self.busy[answer] = _StartedTask(slot, number, tries, time.monotonic())

    def end(self, slot: Any) -> None:
        """Let an actor clean up; then it is killed, and its CPU is free."""
        self._started.remove(slot)
        self._ending[slot.end.options(concurrency_group="end").remote()] = slot

    def lose(self, slot: Any) -> None:
        """Forget an actor that was lost; one that only could not be reached is killed."""
        self._started.remove(slot)
        _kill(slot)

    def close(self) -> None:
        """End all actors, also those that have a task."""
        for slot in [*self._started]:
            self.end(slot)
        for slot in self._starting.values():
            _kill(slot)
        if self._ending:
            ray.wait([*self._ending], num_returns=len(self._ending), timeout=POLL * 5)
        for slot in self._ending.values():
            _kill(slot)


class _Head:
    """The head node of the cluster, without which no node can be used."""

    def __init__(self) -> None:
        self._address = "" if ray.util.client.ray.is_connected() else ray.get_runtime_context().gcs_address
        self._asked = self._answered = time.monotonic()

    def check(self) -> None:
        """Ask it, not more often than every few seconds.

        :raises HarnessError: if it has not answered for long
        """
        if time.monotonic() - self._asked < CONNECT_TIMEOUT:
            return
        try:
            _check_port(self._address)
        except OSError as error:
            silent = time.monotonic() - self._answered
            if silent >= HEAD_TIMEOUT:
                advice = "start one with `ray start --head`, and run the command again"
                reason = f"its head node at {self._address} has not answered for {silent:.0f} s ({error})"
                raise HarnessError(f"the Ray cluster was lost: {reason}; {advice}") from error
        else:
            self._answered = time.monotonic()
        self._asked = time.monotonic()


class RayExecutor(Executor):
    """Runs tasks on the nodes of a Ray cluster.

    A task whose own process dies is not run again, as with processes. If the actor or the node above it is lost, the
    task is started again on a new actor, at most `MOST_TRIES` times in all; each task is noted once.

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
            _check_port(os.environ.get("RAY_ADDRESS", "") if self._address == "auto" else self._address)
            # Processes of a cluster that is not there yet would stay for a minute.
            with nullcontext() if self._address else interrupts.raised_at_the_end():
                ray.init(self._address or "local", log_to_driver=True, configure_logging=False, **local)
        except (OSError, RuntimeError, ValueError) as error:
            where = f"at {self._address}" if self._address else "on this machine"
            reason = " ".join(str(error).split())
            advice = "start one with `ray start --head`"
            raise UsageError(f"no Ray cluster could be used {where}: {reason:.300}; {advice}") from error

    def _map(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], note: Note[Task, Result], on_wait: OnWait
    ) -> list[Ended[Result]]:
        self._connect()
        head, slots = _Head(), _Slots[Task](self.jobs)
        waiting = deque((number, 1) for number in range(len(tasks)))
        found: dict[int, Ended[Result]] = {}
        try:
            with interrupts.raised():
                while waiting or slots.busy:
                    head.check()
                    slots.start(len(waiting))
                    for answer in slots.answers():
                        given = slots.busy.pop(answer, None)
                        if given is None:
                            slot = slots.free(answer)
                        else:
                            slot = given.slot
                            ended: Ended[Result] | None = _ended(answer, given)
                            if ended is None or ended.reason:
                                slots.lose(slot)
                                slot = None
                            if ended is None:
                                waiting.append((given.number, given.tries + 1))
                            else:
                                found[given.number] = ended
                                note(tasks[given.number], ended)
                        # Actors can be lost together, so one that is not new may be dead as well.
                        needs_new = bool(waiting) and waiting[0][1] > 1 and slots.can_start
                        if slot is not None and waiting and (given is None or not needs_new):
                            number, tries = waiting.popleft()
                            slots.give(slot, number, tries, pickle.dumps((function, tasks[number])))
                        elif slot is not None:
                            slots.end(slot)
                    on_wait()
        finally:
            slots.close()
        return [found[number] for number in range(len(tasks))]

    def close(self) -> None:
        """Leave the cluster; one of this machine ends."""
        ray.shutdown()


def _check_port(address: str) -> None:
    """Connect to an address of the form ``HOST:PORT``, for which Ray itself would try for minutes.

    :raises OSError: if nothing answers there
    """
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "://" not in host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT).close()


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
        reason = f"the node or the actor of this run was lost {given.tries} times; the last time: {_words(error)}"
        return Ended(None, None, time.monotonic() - given.started, reason)
    return ended


def _words(error: RayError) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _kill(slot: Any) -> None:
    with suppress(RayError):
        ray.kill(slot)
