"""The command that measures the kill matrix, or one row of it."""

from __future__ import annotations

from typing import Annotated

import typer

from verification.console import progress_bars, show
from verification.matrix import tables
from verification.matrix.plan import Bench
from verification.matrix.run import run_fault, run_matrix
from verification.options import AsJson, Jobs, Reports, shelf_of, usable_cores


def matrix(
    context: typer.Context,
    fault: Annotated[str | None, typer.Option(metavar="NAME", help="Plant this fault alone; compare nothing.")] = None,
    update: Annotated[bool, typer.Option("--update", help="Replace the committed matrix and its report.")] = False,
    reports: Reports = None,
    jobs: Jobs = None,
    as_json: AsJson = False,
) -> None:
    """Plant every fault and run the tests that should notice; compare with the committed kill matrix."""
    if fault is not None and update:
        raise typer.BadParameter(f"--update replaces the whole matrix, and --fault {fault} measures one row of it")
    bench, processes = Bench(context.obj), jobs or usable_cores()
    with progress_bars() as bars:
        if fault is None:
            shelf = shelf_of(context.obj, reports)
            result = run_matrix(bench, shelf, update=update, processes=processes, on_progress=bars.probes)
        else:
            result = run_fault(bench, fault, processes=processes, on_progress=bars.probes)
    show(*([result.as_object()] if as_json else tables.parts(result)))
    raise typer.Exit(result.exit_code)
