"""The options that say where tasks run, and how many at the same time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from rlverify.running.executors import Executor, ExecutorName, InlineExecutor, ProcessExecutor


def usable_cores() -> int:
    """How many processes run at once without sharing a core."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
    """What runs the tasks of a command, and what ends it afterwards."""
    executor: Executor = InlineExecutor() if where == "inline" else ProcessExecutor(jobs or usable_cores())
    if where == "ray":
        from rlverify.running.ray_executor import RayExecutor

        executor = RayExecutor(jobs, ray_address or "")
    try:
        yield executor
    finally:
        executor.close()
