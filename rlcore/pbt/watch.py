"""Shows a population in a terminal while another process trains it; it neither locks nor changes the files."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rlcore.errors import CheckpointError, RLCoreError
from rlcore.pbt import files
from rlcore.pbt.files import LineageEvent
from rlcore.pbt.hyperparams import HyperparamValue, PBTConfig
from rlcore.pbt.scheduler import PBTScheduler
from rlcore.pbt.selection import PopulationMember

PAUSE: Final = 1.0
"""Seconds between two looks at the files."""
EVENTS: Final = 8
"""Events of the lineage that are shown if there is room for them."""
SHOWN_SOURCES: Final = 4
AROUND: Final = 14
"""Lines that are neither members nor events."""
PLAIN_WIDTH: Final = 160
"""Characters in a line if there is no terminal."""


def watch(
    folder: Path, *, once: bool = False, console: Console | None = None, pause: Callable[[float], None] = time.sleep
) -> None:
    """Show a population until Ctrl-C, again whenever one of its members has reported.

    :param once: print it once instead, as is done if the output is no terminal
    :param pause: waits some seconds
    :raises CheckpointError: if the folder holds no population, or its state is damaged
    """
    if console is None:
        console = Console(highlight=False)
        if not console.is_terminal and "COLUMNS" not in os.environ:
            console.width = PLAIN_WIDTH
    stamp, seen = files.stamp_of(folder), Seen(folder)
    if once or not console.is_terminal:
        console.print(seen.view(console, time.time()))
        return
    with suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(seen.view(console, time.time()), refresh=True)
            pause(PAUSE)
            if files.stamp_of(folder) != stamp:
                with suppress(RLCoreError, OSError):  # what cannot be read now is shown as it was
                    stamp, seen = files.stamp_of(folder), Seen(folder)


class Seen:
    """A population as its state and its lineage described it when they were read.

    :raises CheckpointError: if the folder holds no population, or its files are damaged
    """

    def __init__(self, folder: Path) -> None:
        state = files.read_state(folder)
        if state is None:
            raise CheckpointError(
                folder, f"holds no population: there is no {files.STATE_FILE}; give the folder of one"
            )
        given = dict(state.config)
        if given.get("exploit_method") != "truncation":  # the other method refuses a ratio
            given.pop("truncation_ratio", None)
        self.scheduler = PBTScheduler(PBTConfig(**given))
        self.scheduler.load_state_dict(state.scheduler)
        self.state, self.folder = state, folder
        self.changed = (folder / files.STATE_FILE).stat().st_mtime
        # A run that was killed may have left one more event, which is not committed.
        self.events = files.read_lineage(folder, state.lineage_size)

    def view(self, console: Console, now: float) -> Group:
        """Lay out everything that is shown.

        :param console: its height limits the events
        :param now: in seconds since 1970
        """
        room = console.height - AROUND - len(self.state.members) if console.is_terminal else EVENTS
        events = self.events[-min(EVENTS, room) :] if room > 0 else ()
        figures = ", ".join(
            f"{name.removeprefix('pbt/')} {shown(value)}" for name, value in self.scheduler.get_stats().items()
        )
        return Group(
            *self._heading(now),
            Text(),
            self.table(),
            Text(),
            *(event_line(each, cut=console.is_terminal) for each in events),
            *([Text()] if events else []),
            Text(f"pbt/: {figures}", style="dim"),
        )

    def _heading(self, now: float) -> Iterator[Text]:
        config, seconds = self.scheduler.config, max(0, round(now - self.changed))
        ago = f"{seconds} s" if seconds < 120 else f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"
        yield Text(f"population in {self.folder}, last change {ago} ago", overflow="fold")
        best, interval = "largest" if config.metric_mode == "max" else "smallest", config.perturbation_interval
        yield Text(
            f"score: {config.metric_name}, the {best} is best; members copy after every {interval} updates, next after "
            f"update {self.state.explored_step + interval}"
        )
        yield Text("x2 next to a hyperparameter: the last exploit or exploration doubled it", style="dim")

    def table(self) -> Table:
        """Make a row for each member, the best first."""
        names = list(dict.fromkeys(name for each in self.scheduler.population for name in each.hyperparams))
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("rank", "member", "score", "trend", "update"):
            table.add_column(name, justify="right")
        for name in (*names, "exploits", "lineage", "diverged"):
            table.add_column(name, overflow="fold")
        for rank, member in enumerate(self.scheduler.ranked(), start=1):
            trend = trend_of(member.history)
            sources = [each.member for each in files.ancestors(self.events, member.member_id)]
            copies = [each.step for each in self._own(member) if each.event == "exploit"]
            table.add_row(
                str(rank),
                str(member.member_id),
                "-" if member.performance is None else f"{member.performance:.4g}",
                "-" if trend is None else f"{trend:+.4g}",
                str(member.step),
                *(self._hyperparam(member, name) for name in names),
                str(self.state.members[member.member_id].exploits),
                lineage(member.member_id, sources),
                Text("-") if not member.history else divergence(member.history, copies, sources),
            )
        return table

    def _own(self, member: PopulationMember) -> list[LineageEvent]:
        return [each for each in self.events if each.member == member.member_id and each.event != "start"]

    def _hyperparam(self, member: PopulationMember, name: str) -> Text:
        own, value = self._own(member), member.hyperparams.get(name)
        before = (own[-1].hyperparams_before or {}).get(name) if own else value
        text = Text(shown(value))
        return text if before == value else text.append(f" {change(before, value)}", style="dim")


def lineage(member: int, sources: Sequence[int]) -> str:
    """Return the members that its weights come from, such as ``3 <- 1 <- 0``."""
    named = [member, *sources][: SHOWN_SOURCES + 1]
    return " <- ".join([*map(str, named), *(["..."] if len(sources) > SHOWN_SOURCES else [])]) if sources else "-"


def trend_of(history: Sequence[Mapping[str, Any]]) -> float | None:
    """Subtract the last score but one from the last; None unless there are two and both are finite."""
    if len(history) < 2:
        return None
    before, last = (float(each["performance"]) for each in history[-2:])
    return last - before if math.isfinite(last) and math.isfinite(before) else None


def divergence(history: Sequence[Mapping[str, Any]], copies: Sequence[int], sources: Sequence[int]) -> Text:
    """Return the update since which reports have no number. "no score" means that its weights never had one: it may
    have diverged, or no episode has ended since the start or since the last copy.

    :param copies: updates that the member had made when it copied another, after its report of that step
    """
    without = [*takewhile(lambda each: math.isnan(each["performance"]), reversed(history))]
    if not without:
        return Text("no")
    since = int(without[-1]["step"])
    copied = max((step for step in copies if step < since), default=-1)
    scored = any(copied < each["step"] < since for each in history)
    since_copied = bool(copies) and copies[-1] >= history[-1]["step"]
    words = f"since {since}" if scored else f"no score since {since}"
    return Text(words + (f", copied {sources[0]}" if since_copied else ""), style="red")


def event_line(event: LineageEvent, *, cut: bool = False) -> Text:
    """Describe an event.

    :param cut: show as much as fits into one line
    """
    line = Text(f"update {event.step}: member {event.member} ", no_wrap=cut, overflow="ellipsis" if cut else "fold")
    if event.event == "start":
        values = ", ".join(f"{name} {shown(value)}" for name, value in event.hyperparams.items())
        return line.append(f"started with {values}")
    score = "" if event.performance is None else f", score {event.performance:.4g}"
    copied = "explored" if event.source is None else f"copied member {event.source} of update {event.source_step}"
    before = event.hyperparams_before or {}
    changes = [
        f"{name} {shown(before.get(name))} -> {shown(value)}"
        for name, value in event.hyperparams.items()
        if before.get(name) != value
    ]
    return line.append(f"{copied}{score}: {', '.join(changes) or 'the same hyperparameters'}")


def change(before: HyperparamValue, value: HyperparamValue) -> str:
    """Return the factor between two numbers, or the value before."""
    numbers = [each for each in (before, value) if isinstance(each, int | float) and not isinstance(each, bool)]
    return f"x{value / before:.3g}" if len(numbers) == 2 and all(numbers) else f"was {shown(before)}"  # type: ignore[operator]


def shown(value: HyperparamValue) -> str:
    """Return a value in three digits."""
    return "-" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
