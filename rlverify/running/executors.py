"""Where tasks run: in this process, in worker processes, or on Ray. The results are the same."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Final, Literal, TypeAlias

from rlverify.records import interrupts
from rlverify.records.errors import UsageError
from rlverify.records.printing import stdout_sent_to_stderr
from rlverify.running.executor import Executor, Note, OnWait, Result, Task
from rlverify.running.pool import Ended, pin_threads, run_each

VARIABLES: Final = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_COLOR_PREFIX": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Keep Ray from printing advice and colours, from leaving out lines, and from reporting its use."""
ExecutorName: TypeAlias = Literal["inline", "processes", "ray"]


@dataclass(frozen=True)
class InlineExecutor(Executor):
    """Runs tasks one after the other in this process, for a debugger or a profiler.

    A task that kills its process ends the whole command. A task that waits in compiled code is not ended at its time
    limit.
    """

    jobs: int = field(default=1, init=False)

    def _map(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], note: Note[Task, Result], on_wait: OnWait
    ) -> list[Ended[Result]]:
        pin_threads()
        found: list[Ended[Result]] = []
        with interrupts.raised(), own_temporary_folder(), stdout_sent_to_stderr():
            for task in tasks:
                started = time.monotonic()
                found.append(Ended(function(task), None, time.monotonic() - started))
                note(task, found[-1])
                on_wait()
        return found


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


@dataclass(frozen=True)
class ProcessExecutor(Executor):
    """Runs tasks in worker processes of this machine; see `rlverify.running.pool`.

    A task whose process dies is not run again.

    :param jobs: processes
    """

    jobs: int

    def _map(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], note: Note[Task, Result], on_wait: OnWait
    ) -> list[Ended[Result]]:
        return run_each(function, tasks, processes=self.jobs, note=note, on_wait=on_wait)


def ray_executor(jobs: int | None, address: str) -> Executor:
    """An executor on Ray.

    :param jobs: how many tasks at the same time; None for one for each CPU of the cluster
    :param address: of a cluster, as ``ray.init`` takes it; empty for one of this machine, which ends with the executor
    :raises UsageError: if Ray is not installed, or cannot be reached
    """
    if find_spec("ray") is None:
        raise UsageError("Ray is not installed, so no task was run; run `pip install 'rlverify[ray]'`")
    for name, value in VARIABLES.items():
        os.environ.setdefault(name, value)  # Ray reads them when it is imported
    from rlverify.running.ray_executor import RayExecutor

    return RayExecutor(jobs, address)
