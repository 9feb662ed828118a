"""The options of commands that say where the members of a population train."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from typing import Annotated

import typer

from rlcore.errors import SettingError
from rlcore.pbt.executors import Executor, InlineExecutor
from rlcore.pbt.process_executor import ProcessExecutor
from rlcore.pbt.ray_executor import RayExecutor


class ExecutorKind(StrEnum):
    """Where the members train."""

    inline = "inline"
    processes = "processes"
    ray = "ray"


ExecutorOption = Annotated[
    ExecutorKind,
    typer.Option(
        help="Where members train: one after the other in this process, in worker processes, or on Ray (extra ray)."
    ),
]
JobsOption = Annotated[
    int | None,
    typer.Option(min=1, help="Members that train at the same time, each on one thread. [default: one a core]"),
]
RayAddressOption = Annotated[
    str | None,
    typer.Option(help="Cluster of Ray that is running: HOST:6379, or auto. [default: one on this machine]"),
]


def make_executor(kind: ExecutorKind, jobs: int | None, ray_address: str | None) -> Executor:
    """The executor that the options describe.

    :raises SettingError: if they contradict each other, or Ray is asked for and not installed
    """
    if ray_address == "":
        raise SettingError("ray_address", "--ray-address is empty; give HOST:6379 or auto, or leave it out")
    if kind is not ExecutorKind.ray and ray_address is not None:
        raise SettingError(
            "ray_address",
            f"--ray-address {ray_address} and --executor {kind} contradict each other; give --executor ray, or leave "
            "the address out",
        )
    if kind is ExecutorKind.inline and jobs is not None:
        raise SettingError(
            "jobs",
            f"--jobs {jobs} and --executor inline contradict each other, as one member trains at a time; give "
            "--executor processes, or leave --jobs out",
        )
    if kind is ExecutorKind.ray:
        return RayExecutor(jobs, ray_address)
    if kind is ExecutorKind.processes:
        return ProcessExecutor(available_cores() if jobs is None else jobs)
    return InlineExecutor()


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
