"""The options of commands that run something: which files they write, where tasks run, and how many at once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from rlverify.cli.console import write
from rlverify.running.executors import Executor, ExecutorName, InlineExecutor, ProcessExecutor

STDOUT = Path("-")
APPENDED = "summary"

JUnitFile = Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write this run as JUnit's XML.")]
SarifFile = Annotated[
    Path | None, typer.Option("--sarif", metavar="FILE", help="Write the claims that fell as SARIF 2.1.0.")
]
SummaryFile = Annotated[
    Path | None,
    typer.Option("--summary", metavar="FILE", help="Append this run as Markdown."),
]
JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write this run as JSON; - prints it, and nothing else.")
]


def check_outputs(files: Mapping[str, Path | None]) -> dict[str, Path]:
    """Return the files that were asked for, by the name of their format, after making sure that each can be written."""
    chosen = {name: path if path == STDOUT else path.absolute() for name, path in files.items() if path is not None}
    for name, path in chosen.items():
        if path == STDOUT and name == "json":
            continue
        if path == STDOUT or path.is_dir() or path.name.startswith("--"):
            raise typer.BadParameter(f"--{name} {files[name]} is not a file; name one")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise typer.BadParameter(f"--{name} {path} cannot be written: {error.strerror}") from error
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise typer.BadParameter(f"--{name} {path} cannot be written; name another file")
    return chosen


def places(files: Mapping[str, Path]) -> str:
    """Where all fallen claims are, or the options that would write them."""
    named = [str(files[name]) for name in ("junit", "json") if name in files]
    return " and ".join(named) or "--junit FILE or --json FILE"


def write_texts(files: Mapping[str, Path], texts: Mapping[str, str]) -> None:
    """Write the text of each format to its file."""
    for name, path in files.items():
        if path in (STDOUT, Path("/dev/stdout")):  # opened again, the latter would be written over
            write(texts[name])
        else:
            with path.open("a" if name == APPENDED else "w", encoding="utf-8") as file:
                file.write(texts[name])


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
