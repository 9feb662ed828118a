"""The commands about faults: `matrix` plants them under the tests, and `repin` fits their pins to the code of today."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Mapping
from difflib import unified_diff
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from rlverify.cli.console import ProgressLine, complain, plain_table, show
from rlverify.cli.options import AsJson, Reports, Revision, project_of, report_paths
from rlverify.cli.run_options import Jobs, RayAddress, Where, executor_of
from rlverify.evidence.files import alone_in, write_files
from rlverify.gating.git_base import Base, find_base, known_base
from rlverify.kill_matrix.committed import false_alarm_rate, kill_rate
from rlverify.kill_matrix.plan import MatrixPlan
from rlverify.kill_matrix.run import MatrixResult, run_fault, run_matrix
from rlverify.project.fingerprint import definitions, member_digest, module_path, source_digest
from rlverify.project.planting import healthy_member
from rlverify.records.errors import FaultError, UsageError
from rlverify.records.matrix import FaultResult
from rlverify.records.problems import AS_EXPECTED, CLAIM_FELL
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


def repin(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[FAULT]...", help="Only these faults. [default: all that are stale]")
    ] = None,
    base: Revision = None,
) -> None:
    """Set the pins of stale faults to the code of today, after showing what has changed in their targets.

    Read each difference: a fault must still plant its bug in the new code.
    """
    project = project_of(context)
    before = find_base(project, base) if base else known_base(project)
    faults = [project.fault(name) for name in names] if names else list(project.faults.values())
    stale: dict[str, str] = {}
    failed = 0
    for fault in faults:
        try:
            member = healthy_member(fault.owner, fault.member)
            pin = member_digest(member)
        except (FaultError, ImportError, AttributeError) as error:
            complain(f"{fault.name}: its target {fault.target} is gone ({error}); point it elsewhere")
            failed += 1
            continue
        if pin != fault.pins:
            show(f"{fault.name}: {fault.target} ({fault.pins} -> {pin})", *_difference(member, before, fault.pins), "")
            stale[fault.name] = pin
    written = set()
    for path in sorted({module_path(fault.defined_in) for fault in faults if fault.name in stale}):
        text, found = _with_pins(path.read_text(encoding="utf-8"), stale)
        write_files(path.parent, {path.name: text})
        written |= found
    followed = {(fault.target, fault.pins) for fault in faults if fault.name in written}
    for fault in faults:
        if fault.name in stale.keys() - written and (fault.target, fault.pins) not in followed:
            complain(
                f'{fault.name}: {fault.defined_in} has no pins="..." next to its name; set it to {stale[fault.name]}'
            )
            failed += 1
    show(f"{len(stale)} of {len(faults)} faults were stale; check that each still plants its bug")
    raise typer.Exit(CLAIM_FELL if failed else AS_EXPECTED)


def _difference(member: Callable[..., Any], base: Base | None, pinned: str) -> Iterator[str]:
    """What has changed in a target since the base, as lines of a diff; all of it where the base does not have it."""
    name, path = member.__qualname__, Path(str(sys.modules[member.__module__].__file__))
    now = _source(path.read_text(encoding="utf-8"), name)
    text = base.text(path) if base is not None else None
    try:
        was = _source(text or "", name)
    except (LookupError, SyntaxError):
        yield f"  the base does not have {name} in {path.name}; the whole of it:"
        yield from (f"  + {line}" for line in now)
        return
    if source_digest(text or "", name) != pinned:
        yield "  the base does not have what was pinned; name an older one with --base"
    yield from (f"  {line}" for line in list(unified_diff(was, now, lineterm=""))[2:])


def _source(text: str, name: str) -> list[str]:
    lines = text.splitlines()
    found = [node for node in definitions(ast.parse(text), name) if isinstance(node, ast.stmt)]
    return [line for node in found for line in lines[node.lineno - 1 : node.end_lineno]]


def _with_pins(text: str, pins: Mapping[str, str]) -> tuple[str, set[str]]:
    """A module of faults with other pins, by name of the fault; and the names of those that are in it."""
    lines, found = text.split("\n"), set[str]()
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    for call in calls:
        name = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
        value = next((each.value for each in call.keywords if each.arg == "pins"), None)
        if name in pins and isinstance(value, ast.Constant) and value.lineno == value.end_lineno:
            found.add(str(name))
            line, new = lines[value.lineno - 1].encode(), f'"{pins[str(name)]}"'.encode()
            lines[value.lineno - 1] = (line[: value.col_offset] + new + line[value.end_col_offset :]).decode()
    return "\n".join(lines), found
