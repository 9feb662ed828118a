"""The command that measures the kill matrix, or one row of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from rlverify.cli.console import ProgressLine, complain, plain_table, show
from rlverify.cli.options import AsJson, Reports, project_of, report_paths
from rlverify.cli.run_options import Jobs, RayAddress, Where, executor_of
from rlverify.evidence.files import alone_in
from rlverify.kill_matrix.committed import false_alarm_rate, kill_rate
from rlverify.kill_matrix.plan import MatrixPlan
from rlverify.kill_matrix.run import MatrixResult, run_fault, run_matrix
from rlverify.records.errors import UsageError
from rlverify.records.matrix import FaultResult
from rlverify.running.executors import in_threads

STYLES = {"killed": "green", "survived": "yellow"}
OF_DIFFERENCES = {"+": "green", "-": "red", "@": "cyan"}


def matrix_parts(result: MatrixResult) -> Iterator[Any]:
    """Survivors with what is planted, one line a fault, those asked for by name, all that is wrong, and the rates."""
    rows = sorted(result.matrix.rows, key=lambda row: row.as_expected)
    for row in rows:
        if row.plan.fault in result.differences or not (row.as_expected or row.plan.must_survive):
            yield from _closely(row, result.differences.get(row.plan.fault, row.diff))
    if rows:
        yield _table(rows)
    yield Text("")
    yield from (Text(str(problem)) for problem in result.problems)
    yield Text(_summary(result))


def _closely(row: FaultResult, difference: str) -> Iterator[Text]:
    yield Text.assemble(f"\n{row.plan.fault} ({row.plan.kind}): ", (row.fate.upper(), STYLES.get(row.fate, "red")))
    yield from (Text(line, style=OF_DIFFERENCES.get(line[:1], "")) for line in difference.splitlines())
    yield from (Text(f"killed by {test}") for test in row.killers)
    silent = () if row.plan.must_survive else row.blind
    yield from (Text(f"should have detected it, and did not: {test}") for test in silent)
    yield Text("")


def _table(rows: list[FaultResult]) -> Table:
    table = plain_table("fault", "kind", "killed by", "of", "fate", wrapped=["fault"])
    for row in rows:
        fate = Text(row.fate, style=STYLES.get(row.fate, "red") if row.as_expected else "red")
        table.add_row(row.plan.fault, row.plan.kind, str(len(row.killers)), str(len(row.plan.tests)), fate)
    return table


def _summary(result: MatrixResult) -> str:
    bugs, controls = kill_rate(result.matrix), false_alarm_rate(result.matrix)
    words = {0: "nothing to report", 1: "not as expected", 2: "the harness failed"}
    return (
        f"killed {bugs.noticed} of {bugs.of} faults ({bugs}), false alarms {controls.noticed} of {controls.of} "
        f"({controls}); {words[result.exit_code]}"
    )


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
            with alone_in(paths.working, complain):
                result = run_matrix(
                    matrix_plan, paths, update=update, executor=executor, on_progress=ProgressLine().probes
                )
        else:
            result = run_fault(matrix_plan, fault, executor=executor, on_progress=ProgressLine().probes)
    show(*([result.as_object()] if as_json else matrix_parts(result)))
    raise typer.Exit(result.exit_code)
