"""Where a command runs its tasks: the options ``--executor``, ``--jobs`` and ``--ray-address``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from rlverify.cli.options import usable_cores
from rlverify.records.errors import UsageError
from rlverify.running.executors import Executor, ExecutorName, InlineExecutor, ProcessExecutor

Jobs = Annotated[
    int | None,
    typer.Option(min=1, help="Tasks at the same time. [default: one per usable core or CPU of the cluster]"),
]
Where = Annotated[
    ExecutorName,
    typer.Option("--executor", help="Where tasks run: in this process, in worker processes, or on a Ray cluster."),
]
RayAddress = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="The cluster of --executor ray. [default: one of this machine]")
]


@contextmanager
def executor_of(where: ExecutorName, jobs: int | None, ray_address: str | None) -> Iterator[Executor]:
    """What runs the tasks of a command, and what ends it afterwards.

    :raises UsageError: if the options contradict each other, or Ray is not installed or cannot be reached
    """
    executor = _made(where, jobs, ray_address)
    try:
        yield executor
    finally:
        executor.close()


def _made(where: ExecutorName, jobs: int | None, ray_address: str | None) -> Executor:
    if ray_address == "":
        raise UsageError("--ray-address is empty; give HOST:6379 or auto, or leave it out")
    if ray_address is not None and where != "ray":
        raise UsageError(f"--ray-address {ray_address} is for --executor ray, and the executor is {where}")
    if where == "ray":
        from rlverify.running.ray_executor import RayExecutor

        return RayExecutor(jobs, ray_address or "")
    if where == "processes":
        return ProcessExecutor(jobs or usable_cores())
    if jobs not in (None, 1):
        raise UsageError(f"--executor inline runs one task at a time, and --jobs is {jobs}; leave one of them out")
    return InlineExecutor()
