"""Shows a population in a terminal, while another process trains it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from rich.console import Console, Group
from rich.live import Live
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from rlcore.pbt.files import LineageEvent
from rlcore.pbt.hyperparams import Hyperparams, HyperparamValue
from rlcore.pbt.watching import GradientScale, PopulationFiles, WatchedMember, WatchedPopulation

PAUSE: Final = 1.0
"""Seconds between two looks at the files."""
EVENTS: Final = 8
"""Events of the lineage that are shown where there is room for them."""
SHOWN_SOURCES: Final = 4
AROUND: Final = 14
"""Lines that are neither members nor events."""
PLAIN_WIDTH: Final = 160
"""Characters in a line where there is no terminal."""
UNLIMITED: Final = 10_000


def watch(
    folder: Path, *, once: bool = False, console: Console | None = None, pause: Callable[[float], None] = time.sleep
) -> None:
    """Show a population until Ctrl-C, again whenever one of its members has reported.

    :param once: print it once instead, as is done where the output is no terminal
    :param pause: waits some seconds
    :raises CheckpointError: if the folder holds no population
    :raises StateError: if its state is damaged
    """
    console = console or terminal()
    files = PopulationFiles(folder)
    seen = files.look()
    if once or not console.is_terminal:
        console.print(view(seen, console, time.time()))
        return
    with suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(view(seen, console, time.time()), refresh=True)
            pause(PAUSE)
            if files.has_changed():
                seen = files.look()


def terminal() -> Console:
    """The terminal. If the output is a file or a pipe, lines have `COLUMNS` or `PLAIN_WIDTH` characters."""
    found = Console(highlight=False)
    if not found.is_terminal and "COLUMNS" not in os.environ:
        found.width = PLAIN_WIDTH
    return found


def view(seen: WatchedPopulation, console: Console, now: float) -> Group:
    """All that is shown.

    :param console: whose width decides whether hyperparameters have a table of their own, and whose height, in a
        terminal, how many events fit
    :param now: in seconds since 1970
    """
    whole = members_table(seen.members, with_hyperparams=True)
    needed = Measurement.get(console, console.options.update(max_width=UNLIMITED), whole).maximum
    tables = [whole] if needed <= console.width else [members_table(seen.members), hyperparams_table(seen.members)]
    room = console.height - AROUND - len(seen.members) * len(tables) if console.is_terminal else EVENTS
    shown = seen.events[-min(EVENTS, room) :] if room > 0 else ()
    return Group(
        *heading(seen, now),
        *(part for table in tables for part in (Text(), table)),
        Text(),
        *(event_line(each, cut=console.is_terminal) for each in shown),
        *([Text()] if shown else []),
        figures_line(seen.figures),
    )


def heading(seen: WatchedPopulation, now: float) -> Iterator[Text]:
    """The folder and its last change; what a score is, and when members copy."""
    yield Text(f"population in {seen.folder}, last change {_ago(now - seen.changed)} ago", overflow="fold")
    best = "largest" if seen.mode == "max" else "smallest"
    yield Text(
        f"score: {seen.metric}, the {best} is best; members copy after every {seen.interval} updates, next after "
        f"update {seen.next_exploits}"
    )
    yield Text("x2 next to a hyperparameter: the last exploit or exploration doubled it", style="dim")


def members_table(members: Sequence[WatchedMember], *, with_hyperparams: bool = False) -> Table:
    """A row for each member, the best first."""
    names = _names(members) if with_hyperparams else []
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("rank", "member", "score", "trend", "update"):
        table.add_column(name, justify="right")
    for name in (*names, "exploits", "lineage", "gradient scale", "diverged"):
        table.add_column(name)
    for each in members:
        table.add_row(
            str(each.rank),
            str(each.member),
            "-" if each.score is None else f"{each.score:.4g}",
            "-" if each.trend is None else f"{each.trend:+.4g}",
            str(each.step),
            *(hyperparam(each, name) for name in names),
            str(each.exploits),
            lineage(each),
            scale(each.scale, each.step),
            divergence(each),
        )
    return table


def hyperparams_table(members: Sequence[WatchedMember]) -> Table:
    """The hyperparameters alone, in the order of the members' table."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("member", justify="right")
    for name in _names(members):
        table.add_column(name)
    for each in members:
        table.add_row(str(each.member), *(hyperparam(each, name) for name in _names(members)))
    return table


def hyperparam(member: WatchedMember, name: str) -> Text:
    """A value, and how the last exploit or exploration changed it."""
    value = member.hyperparams.get(name)
    text = Text(shown(value))
    if member.before is not None and member.before.get(name) != value:
        text.append(f" {_change(member.before.get(name), value)}", style="dim")
    return text


def lineage(member: WatchedMember) -> str:
    """Whose weights it has, such as ``3 <- 1 <- 0``."""
    if not member.sources:
        return "-"
    named = [member.member, *member.sources][: SHOWN_SOURCES + 1]
    more = " <- ..." if len(member.sources) > SHOWN_SOURCES else ""
    return " <- ".join(map(str, named)) + more


def scale(found: GradientScale | None, step: int) -> str:
    """The factor, and the update that it is of where that is not the member's last."""
    if found is None:
        return "-"
    if found.factor is None:
        return "off"
    words = " (warm-up)" if found.warming_up else ""
    return f"{found.factor:.3g}{words}" + (f" at {found.step}" if found.step != step else "")


def divergence(member: WatchedMember) -> Text:
    """Since which update there is no score, and whether it has copied another since."""
    if member.unscored is None:
        return Text("no" if member.score is not None else "-")
    since = member.unscored.since
    words = f"since {since}" if member.unscored.diverged else f"no score since {since}"
    copied = member.copied_at is not None and member.copied_at >= member.step
    return Text(words + (f", copied {member.sources[0]}" if copied and member.sources else ""), style="red")


def event_line(event: LineageEvent, *, cut: bool = False) -> Text:
    """What happened to a member.

    :param cut: show as much as fits into one line
    """
    line = Text(f"update {event.step}: member {event.member} ", no_wrap=cut, overflow="ellipsis" if cut else "fold")
    if event.event == "start":
        return line.append(f"started with {_values(event.hyperparams)}")
    score = "" if event.performance is None else f", score {event.performance:.4g}"
    copied = "explored" if event.source is None else f"copied member {event.source} of update {event.source_step}"
    before = event.hyperparams_before or {}
    changes = [
        f"{name} {shown(before.get(name))} -> {shown(value)}"
        for name, value in event.hyperparams.items()
        if before.get(name) != value
    ]
    return line.append(f"{copied}{score}: {', '.join(changes) or 'the same hyperparameters'}")


def figures_line(figures: Mapping[str, float]) -> Text:
    """The population's figures, by their names in the log."""
    named = [f"{name.removeprefix('pbt/')} {shown(value)}" for name, value in figures.items()]
    return Text(f"pbt/: {', '.join(named)}", style="dim")


def shown(value: HyperparamValue) -> str:
    """A value in three digits."""
    return "-" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


def _change(before: HyperparamValue, value: HyperparamValue) -> str:
    numbers = [
        each for each in (before, value) if isinstance(each, int | float) and not isinstance(each, bool) and each
    ]
    return f"x{numbers[1] / numbers[0]:.3g}" if len(numbers) == 2 else f"was {shown(before)}"


def _names(members: Sequence[WatchedMember]) -> list[str]:
    return list(dict.fromkeys(name for each in members for name in each.hyperparams))


def _values(hyperparams: Hyperparams) -> str:
    return ", ".join(f"{name} {shown(value)}" for name, value in hyperparams.items())


def _ago(seconds: float) -> str:
    whole = max(0, round(seconds))
    return f"{whole} s" if whole < 120 else f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h"
