"""Shows a population in a terminal while another process trains it; it reads the state and the lineage alone."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rlcore.errors import CheckpointError, RLCoreError
from rlcore.pbt import files, selection
from rlcore.pbt.files import LineageEvent
from rlcore.pbt.hyperparams import HyperparamValue
from rlcore.pbt.selection import PopulationMember

PAUSE: Final = 1.0
"""Seconds between two looks at the files."""
EVENTS: Final = 8
"""Events of the lineage that are shown."""
SHOWN_SOURCES: Final = 4
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
    stamp, seen = files.stamp_of(folder), view(folder)
    if once or not console.is_terminal:
        console.print(seen)
        return
    with suppress(KeyboardInterrupt), Live(seen, console=console, auto_refresh=False) as live:
        while True:
            pause(PAUSE)
            if files.stamp_of(folder) != stamp:
                with suppress(RLCoreError, OSError):  # what cannot be read now is shown as it was
                    stamp = files.stamp_of(folder)
                    live.update(view(folder), refresh=True)


def view(folder: Path) -> Group:
    """Lay out a population: what its scores are, its members from best to worst, its last events."""
    state = files.read_state(folder)
    if state is None:
        raise CheckpointError(folder, f"holds no population: there is no {files.STATE_FILE}; give the folder of one")
    # A run that was killed may have left one more event, which is not committed.
    events = files.read_lineage(folder, state.lineage_size)
    mode, interval = state.config["metric_mode"], state.config["perturbation_interval"]
    members = [PopulationMember(**each) for each in state.scheduler["members"]]
    return Group(
        Text(f"population in {folder}", overflow="fold"),
        Text(
            f"score: {state.config['metric_name']}, the {'largest' if mode == 'max' else 'smallest'} is best; members "
            f"copy after every {interval} updates, next after update {state.explored_step + interval}\n"
        ),
        _table(selection.rank(members, mode), [each.exploits for each in state.members], events),
        Text(),
        *map(event_line, events[-EVENTS:]),
    )


def _table(ranked: Sequence[PopulationMember], exploits: Sequence[int], events: Sequence[LineageEvent]) -> Table:
    names = list(dict.fromkeys(name for each in ranked for name in each.hyperparams))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("rank", "member", "score", "update"):
        table.add_column(name, justify="right")
    for name in (*names, "exploits", "lineage"):
        table.add_column(name, overflow="fold")
    for rank, member in enumerate(ranked, start=1):
        sources = [each.member for each in files.ancestors(events, member.member_id)]
        table.add_row(
            str(rank),
            str(member.member_id),
            "-" if member.performance is None else f"{member.performance:.4g}",
            str(member.step),
            *(shown(member.hyperparams.get(name)) for name in names),
            str(exploits[member.member_id]),
            lineage(member.member_id, sources),
        )
    return table


def lineage(member: int, sources: Sequence[int]) -> str:
    """Return the members that its weights come from, such as ``3 <- 1 <- 0``."""
    named = [member, *sources][: SHOWN_SOURCES + 1]
    return " <- ".join([*map(str, named), *(["..."] if len(sources) > SHOWN_SOURCES else [])]) if sources else "-"


def event_line(event: LineageEvent) -> Text:
    """Describe an event."""
    line = Text(f"update {event.step}: member {event.member} ", overflow="fold")
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


def shown(value: HyperparamValue) -> str:
    """Return a value in three digits."""
    return "-" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)
