"""The command that measures the kill matrix, or one row of it."""

from __future__ import annotations

from typing import Annotated

import typer

from rlverify.cli import matrix_tables
from rlverify.cli.console import complain, progress_bars, show
from rlverify.cli.executing import Jobs, RayAddress, Where, executor_of
from rlverify.cli.options import AsJson, Reports, project_of, report_paths
from rlverify.evidence.locking import alone_in
from rlverify.kill_matrix.plan import MatrixPlan
from rlverify.kill_matrix.run import run_fault, run_matrix
from rlverify.records.errors import UsageError
from rlverify.running.executors import in_threads


def matrix(
    context: typer.Context,
    fault: Annotated[str | None, typer.Option(metavar="NAME", help="Plant this fault alone.")] = None,
    update: Annotated[bool, typer.Option("--update", help="Replace the committed matrix and its report.")] = False,
    reports: Reports = None,
    jobs: Jobs = None,
    where: Where = "processes",
    ray_address: RayAddress = None,
    as_json: AsJson = False,
) -> None:
    """Plant every fault and run the tests that should detect it."""
    if fault is not None and update:
        raise UsageError(f"--update replaces the whole matrix, and --fault {fault} measures one row of it")
    project_of(context).check()
    matrix_plan = MatrixPlan(project_of(context))
    paths = report_paths(project_of(context), reports)
    with executor_of(where, jobs, ray_address) as chosen:
        executor = in_threads(chosen)
        if fault is None:
            with alone_in(paths.working, complain), progress_bars() as bars:
                result = run_matrix(matrix_plan, paths, update=update, executor=executor, on_progress=bars.probes)
        else:
            with progress_bars() as bars:
                result = run_fault(matrix_plan, fault, executor=executor, on_progress=bars.probes)
    show(*([result.as_object()] if as_json else matrix_tables.parts(result)))
    raise typer.Exit(result.exit_code)
