"""How the command line prints, and tells how far it is; used by the files of commands and by nothing else."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from shutil import get_terminal_size
from typing import Any, Literal, TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rlverify.evidence.files import canonical_json
from rlverify.records.problems import SCHEMA_VERSION

PLAIN_WIDTH = 100
"""Of tables where there is no terminal and no variable COLUMNS."""
SECONDS_BETWEEN_LINES = 10.0
"""Between two lines of progress, where no bar can be drawn."""
BAR = 20
"""Characters of the bar."""
ERASED = "\r\x1b[2K"
"""Removes the bar from the line of the terminal."""


def plain_table(*headings: str, wrapped: Sequence[str]) -> Table:
    """An empty table with rules below its headings alone."""
    table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        table.add_column(heading, overflow="fold", no_wrap=heading not in wrapped)
    return table


def show(*parts: Any) -> None:
    """Print each part: objects as JSON, with the version of their schema; texts and tables as they are."""
    for part in parts:
        if isinstance(part, dict):
            write(canonical_json({"schema_version": SCHEMA_VERSION, **part}))
        else:
            _print(part)


def _print(part: Any) -> None:
    """Sentences stay on one line; tables are as wide as the terminal, as COLUMNS says, or as `PLAIN_WIDTH`."""
    colours: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"  # rich would keep bold text
    width = get_terminal_size((PLAIN_WIDTH, 0)).columns
    console = Console(color_system=colours, width=width, markup=False, highlight=False, emoji=False)
    with console.capture() as capture:
        console.print(part, soft_wrap=isinstance(part, (str, Text)))
    write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))


def write(text: str) -> None:
    """Print a text as it is."""
    if not sys.stdout:  # as Python has it where the descriptor was closed before the start
        raise OSError("standard output is closed, so nothing can be printed; leave it open, or send it to a file")
    _write(sys.stdout, text)


def complain(line: str) -> None:
    """Print one line on stderr."""
    mention(f"rlverify: {line}")


def mention(line: str) -> None:
    """Print one line on stderr."""
    _write(sys.stderr, f"{line}\n")


def _write(stream: TextIO, text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(ERASED)
        sys.stderr.flush()
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:  # the reader has what it wanted; the verdict stands
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class ProgressLine:
    """Shows on stderr how many runs have ended: a bar in a terminal, elsewhere a line every ten seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._started = clock, clock()
        self._last_line = self._started

    def probes(self, done: int, total: int) -> None:
        """Show how many runs of probes have ended."""
        self._show(f"measuring: {done} of {total} runs", done, total)

    def figures(self, done: int, total: int) -> None:
        """Show how many paired runs have ended, and how long the others may take."""
        minutes = (self._clock() - self._started) / done * (total - done) / 60 if done else 0
        left = f", about {minutes:.0f} min left" if minutes >= 1 else ""
        if total:
            self._show(f"figures: {done} of {total} runs{left}", done, total)

    def checks(self, done: int, total: int, name: str) -> None:
        """Show how many checks have ended, and which one starts."""
        self._show(f"checking {name} ({done} of {total} done)", done, total)

    def _show(self, line: str, done: int, total: int) -> None:
        if sys.stderr.isatty():
            filled = BAR * done // max(total, 1)
            bar = f"{'█' * filled}{'░' * (BAR - filled)} {line}"
            _write(sys.stderr, bar[: get_terminal_size().columns - 1])
        elif self._clock() - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = self._clock()
            mention(line)
