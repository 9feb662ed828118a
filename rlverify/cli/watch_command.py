"""The command `watch`: how far a command is that measures in another terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live

from rlverify.cli.console import show
from rlverify.cli.options import AsJson
from rlverify.cli.watch_tables import ended_view, runs_view
from rlverify.project.settings import WORKING, find_root
from rlverify.records import interrupts
from rlverify.records.errors import SettingsError, UsageError
from rlverify.running.progress_file import RunProgress, read_runs

PAUSE = 1.0
"""Seconds between two looks at the files."""


def watch(
    context: typer.Context,
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="[DIR]", help="A folder of the project, or the one in which the command was started."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Show it once and end.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show how far an audit, a matrix or a field report is that runs in another terminal.

    It ends with the command that it shows, or with Ctrl-C. Where the output is no terminal it shows once.
    """
    start = folder if folder is not None else Path(context.obj)
    places = [start / WORKING, working_folder(start)]
    working, runs = next(((each, found) for each in places if (found := read_runs(each))), (start, []))
    if not runs:
        raise UsageError(
            f"{start}: no command is measuring here; give the folder of the project whose audit, matrix or field "
            "report runs, or the folder in which that was started"
        )
    if as_json:
        show({"runs": as_objects(runs, time.time())})
    elif once or not Console().is_terminal:
        show(runs_view(runs, time.time()))
    else:
        with suppress(KeyboardInterrupt), interrupts.raised():
            follow(working, runs, Console(highlight=False))


def working_folder(start: Path) -> Path:
    """The working folder of the project that a folder is in; outside of a project, one in the folder itself."""
    with suppress(SettingsError):
        return find_root(start.absolute()) / WORKING
    return start / WORKING


def as_objects(runs: Sequence[RunProgress], now: float) -> list[dict[str, Any]]:
    """For JSON."""
    return [{**asdict(run), "state": run.state(now)} for run in runs]


def follow(
    working: Path, runs: Sequence[RunProgress], console: Console, pause: Callable[[float], None] = time.sleep
) -> None:
    """Show the runs of a working folder until each has ended.

    :param runs: those that were found
    :param pause: waits some seconds
    """
    shown = runs
    with Live(console=console, auto_refresh=False) as live:
        while runs:
            shown = runs
            live.update(runs_view(shown, time.time()), refresh=True)
            if all(run.state(time.time()) == "lost" for run in shown):
                return
            pause(PAUSE)
            runs = read_runs(working)
        live.update(ended_view(shown, time.time()), refresh=True)
