"""Where tasks run: in this process, in worker processes, or on Ray. The results are the same."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, TypeVar

from rlverify.records import interrupts
from rlverify.records.errors import UsageError
from rlverify.records.printing import stdout_sent_to_stderr
from rlverify.running.pool import Ended, pin_threads, run_each

if TYPE_CHECKING:
    from rlverify.running.ray_executor import RayExecutor

Task = TypeVar("Task")
Result = TypeVar("Result")
ExecutorName: TypeAlias = Literal["inline", "processes", "ray"]


class Executor(Protocol):
    """Runs tasks.

    :param jobs: how many at the same time
    """

    @property
    def jobs(self) -> int:
        """How many tasks run at the same time."""

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        *,
        note: Callable[[Task, Ended[Result]], None] = lambda *_: None,
        on_wait: Callable[[], None] = lambda: None,
    ) -> list[Ended[Result]]:
        """Call a function with each of the tasks, which are started in their order.

        :param function: of a module that a worker can import; raises nothing
        :param note: called once for each task, when it has ended
        :param on_wait: called at least every second while tasks run; inline, after each task
        :return: what became of each task, in their order
        :raises KeyboardInterrupt: after the workers have been stopped
        """

    def close(self) -> None:
        """End what was started for all maps; another map starts it again."""


@dataclass(frozen=True)
class InlineExecutor:
    """Runs tasks one after the other in this process, for a debugger or a profiler.

    A task that kills its process ends the whole command. A task that waits in compiled code is not ended at its time
    limit.
    """

    @property
    def jobs(self) -> int:
        """One."""
        return 1

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        *,
        note: Callable[[Task, Ended[Result]], None] = lambda *_: None,
        on_wait: Callable[[], None] = lambda: None,
    ) -> list[Ended[Result]]:
        """As `Executor.map`."""
        pin_threads()
        found: list[Ended[Result]] = []
        with interrupts.raised(), _own_temporary_folder(), stdout_sent_to_stderr():
            for task in tasks:
                started = time.monotonic()
                found.append(Ended(function(task), None, time.monotonic() - started))
                note(task, found[-1])
                on_wait()
        return found

    def close(self) -> None:
        """Do nothing."""


@contextmanager
def _own_temporary_folder() -> Iterator[None]:
    """As tasks have it in a worker process: what they leave there is removed."""
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


@dataclass(frozen=True)
class ProcessExecutor:
    """Runs tasks in worker processes of this machine; see `rlverify.running.pool`.

    :param jobs: processes
    """

    jobs: int

    def map(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        *,
        note: Callable[[Task, Ended[Result]], None] = lambda *_: None,
        on_wait: Callable[[], None] = lambda: None,
    ) -> list[Ended[Result]]:
        """As `Executor.map`. A task whose process dies is not run again."""
        return run_each(function, tasks, processes=self.jobs, note=note, on_wait=on_wait)

    def close(self) -> None:
        """Do nothing: a map ends its processes itself."""


def ray_executor(jobs: int | None, address: str) -> RayExecutor:
    """An executor on Ray.

    :param jobs: how many tasks at the same time; None for one for each CPU of the cluster
    :param address: of a cluster, as ``ray.init`` takes it; empty for one of this machine, which ends with the executor
    :raises UsageError: if Ray is not installed, or cannot be reached
    """
    if find_spec("ray") is None:
        raise UsageError("Ray is not installed, so nothing was run; run `pip install 'rlverify[ray]'`")
    from rlverify.running.ray_executor import RayExecutor

    return RayExecutor(jobs, address)
