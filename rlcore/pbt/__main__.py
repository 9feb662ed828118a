"""The command ``python -m rlcore.pbt FOLDER``: shows a population, also one that is training.

Exit codes: 0 shown; 2 it cannot be read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rlcore.errors import CheckpointError, RLCoreError
from rlcore.pbt.hyperparams import HyperparamValue
from rlcore.pbt.population import ancestors, read_lineage, read_state
from rlcore.pbt.scheduler import PopulationMember, rank

FAILED: Final = 2

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def show(
    folder: Annotated[Path, typer.Argument(help="The folder of a population.")],
    once: Annotated[bool, typer.Option("--once", help="Show it once and end.")] = False,
) -> None:
    """Show the members of the population in FOLDER from best to worst, every second until Ctrl-C."""
    try:
        watch(folder, once=once)
    except (RLCoreError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(FAILED) from error


def watch(
    folder: Path, *, once: bool = False, console: Console | None = None, pause: Callable[[float], None] = time.sleep
) -> None:
    """Show a population until Ctrl-C, or once if asked or if the output is no terminal.

    :raises CheckpointError: if the folder holds no population, or its state is damaged
    """
    console = console or Console(highlight=False)
    if once or not console.is_terminal:
        console.width = max(console.width, 160)
        console.print(view(folder), soft_wrap=True)
        return
    with suppress(KeyboardInterrupt), Live(view(folder), console=console, auto_refresh=False) as live:
        while True:
            pause(1.0)
            with suppress(RLCoreError, OSError):  # what cannot be read now is shown as it was
                live.update(view(folder), refresh=True)


def view(folder: Path) -> Group:
    """Lay out a population: what its scores are, and its members from best to worst."""
    state = read_state(folder)
    if state is None:
        raise CheckpointError(folder, "holds no population; give the folder of one")
    # A run that was killed may have left one more event, which is not committed.
    events = read_lineage(folder, state["lineage_size"])
    mode, interval = state["config"]["metric_mode"], state["config"]["perturbation_interval"]
    members = [PopulationMember(**each) for each in state["scheduler"]["members"]]
    names = list(dict.fromkeys(name for each in members for name in each.hyperparams))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("rank", "member", "score", "update"):
        table.add_column(name, justify="right")
    for name in (*names, "exploits", "copied from"):
        table.add_column(name, overflow="fold")
    for place, each in enumerate(rank(members, mode), start=1):
        number, values = each.member_id, [shown(each.hyperparams.get(name)) for name in names]
        sources = " <- ".join(str(source) for source, _ in ancestors(events, number)) or "-"
        row = place, number, shown(each.performance), each.step, *values, each.exploits, sources
        table.add_row(*map(str, row))
    best, after = "largest" if mode == "max" else "smallest", state["explored_step"] + interval
    title = f"population in {folder}\nscore: {state['config']['metric_name']}, the {best} is best; members copy after "
    title += f"every {interval} updates, next after update {after}\n"
    return Group(Text(title, overflow="fold"), table)


def shown(value: HyperparamValue) -> str:
    """Return a value in three digits."""
    return "-" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    app()
