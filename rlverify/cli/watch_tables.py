"""What `rlverify watch` shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rlverify.running.progress_file import ELSEWHERE, RunProgress, RunState, Stage

STATES: Final[dict[RunState, str]] = {
    "running": "running for {since}",
    "silent": "silent for {silent}: its process is stopped, or was replaced by another",
    "lost": "ended without a result: its process is gone",
}


def runs_view(runs: Sequence[RunProgress], now: float) -> Group:
    """All runs, the first started first.

    :param now: in seconds since 1970
    """
    parts: list[RenderableType] = []
    for run in runs:
        parts += [Text()] * bool(parts)
        parts += _run(run, now)
    return Group(*parts)


def ended_view(runs: Sequence[RunProgress], now: float) -> Group:
    """That runs have ended, a line for each."""
    return Group(*(Text(f"{run.command} has ended after {duration(now - run.start)}") for run in runs))


def _run(run: RunProgress, now: float) -> Iterator[RenderableType]:
    state = run.state(now)
    words = STATES[state].format(since=duration(now - run.start), silent=duration(now - run.written))
    yield Text.assemble((run.command, "bold"), f"  (process {run.pid}, {words})")
    if run.stages:
        yield _stages(run, now)
    if state == "running" and run.running:
        yield _workers(run, now)
    if run.ended:
        last = ", ".join(f"{each.text} ({duration(each.seconds)})" for each in reversed(run.ended))
        yield Text(f"ended last: {last}", style="dim")


def _stages(run: RunProgress, now: float) -> Table:
    table = _plain("stage", "done", "left", "ends")
    for each in run.stages:
        is_last = each is run.stages[-1] and run.state(now) == "running"
        ends = end_in_words(each, now) if is_last else "-"
        table.add_row(each.name, f"{each.done} of {each.total}", str(each.total - each.done), ends)
    return table


def _workers(run: RunProgress, now: float) -> Table:
    table = _plain("worker", "for", "runs")
    for each in run.running:
        table.add_row("elsewhere" if each.pid == ELSEWHERE else str(each.pid), duration(now - each.start), each.text)
    return table


def _plain(*names: str) -> Table:
    return Table(*names, box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))


def end_in_words(stage: Stage, now: float) -> str:
    """When the stage is expected to end; the time of day is the machine's."""
    if stage.done == stage.total:
        return "done"
    if stage.end is None:
        return "unknown until a task has ended"
    if stage.end <= now:
        return "later than expected"
    clock = datetime.fromtimestamp(stage.end).astimezone().strftime("%H:%M")
    return f"about {clock}, in {duration(stage.end - now)}"


def duration(seconds: float) -> str:
    """In words, such as ``12 s``, ``3 min 5 s`` or ``2 h 10 min``; 0 s if it is negative."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
