"""The command line: the only place that prints and exits.

Exit codes: 0 as expected; 1 a claim fell, or the committed evidence or reports are out of date; 2 the harness failed
(a claim could not be measured, the catalogue is broken, a folder cannot be written); 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from verification import tables
from verification.audit import (
    Audit,
    Problem,
    Shelf,
    audit,
    check_report,
    committed_records,
    exit_code_of,
    problems_of,
    write_report,
)
from verification.changes import select
from verification.errors import HarnessError
from verification.evidence import canonical_json, load_folder, summarise
from verification.exit_codes import CLAIM_FELL, HARNESS_FAILED, INTERRUPTED
from verification.laboratory import Laboratory
from verification.matrix import tables as kill_tables
from verification.matrix.check import standing
from verification.matrix.check import write_report as write_kill_report
from verification.matrix.plan import Bench
from verification.matrix.run import run_fault, run_matrix
from verification.model import Claim
from verification.report.interface import Record
from verification.report.json import JsonReport, as_object
from verification.runner import Crash, attempt, run_here

PLAIN_WIDTH = 100

app = typer.Typer(
    help="Put every documented bug back, and see whether its check catches it.",
    epilog=(__doc__ or "").partition("\n\n")[2],
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a machine to read.")]
Reports = Annotated[Path | None, typer.Option(help="Folder of the reports. [default: reports, beside the package]")]
Jobs = Annotated[int | None, typer.Option(min=1, help="Processes to measure with. [default: one per usable core]")]
Changed = Annotated[
    bool, typer.Option("--changed", help="Measure only what changes since REV can affect; all if that is not certain.")
]
Revision = Annotated[str | None, typer.Argument(metavar="[REV]", help="A Git revision. [default: HEAD]")]
ClaimId = Annotated[str, typer.Argument(metavar="ID", help="A claim's id, as `rlverify list` shows it.")]


@app.callback()
def choose_laboratory(
    context: typer.Context,
    package: Annotated[str, typer.Option(hidden=True)] = "verification",
    catalogue: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    context.obj = Laboratory(package, catalogue)


@app.command("list")
def list_claims(context: typer.Context, as_json: AsJson = False) -> None:
    """List all claims."""
    claims = context.obj.claims
    _show([asdict(claim) for claim in claims] if as_json else tables.claims_table(claims))


@app.command()
def show(context: typer.Context, claim_id: ClaimId, as_json: AsJson = False) -> None:
    """Show one claim: what is said, where, and how it is tested."""
    claim = context.obj.claim(claim_id)
    if as_json:
        _show(asdict(claim))
    else:
        _show(Text(f"{claim.id}: {claim.title}\n"), tables.claim_table(claim))


@app.command()
def reproduce(
    context: typer.Context,
    claim_id: ClaimId,
    seed: Annotated[int | None, typer.Option(min=0, max=2**32 - 1, help="[default: the claim's first seed]")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure one claim here and now, with one seed, and show what was observed."""
    laboratory: Laboratory = context.obj
    claim = laboratory.claim(claim_id)
    chosen = claim.seeds[0] if seed is None else seed
    runs = run_here(laboratory, claim, [chosen])
    record = Record(claim, summarise(claim, runs, *laboratory.digests(claim)))
    problems = problems_of(record)
    if as_json:
        _show({**as_object(record), "runs": [asdict(run) for run in runs], **_outcome(problems)})
    else:
        _show(Text(f"{claim.id}: {claim.title} (seed {chosen})\n"), tables.runs_table(runs))
        _show(Text("\n") + _verdict_line(record), *(Text(str(problem)) for problem in problems))
    raise typer.Exit(exit_code_of(problems))


@app.command("audit")
def audit_command(
    context: typer.Context,
    update: Annotated[bool, typer.Option("--update", help="Replace the committed evidence and reports.")] = False,
    reports: Reports = None,
    jobs: Jobs = None,
    as_json: AsJson = False,
) -> None:
    """Measure all claims afresh; compare with what is expected and with what is committed."""
    result = _run_audit(context.obj, _shelf(context.obj, reports), update, jobs)
    if as_json:
        _show({"claims": [as_object(record) for record in result.records], **_outcome(result.problems)})
    else:
        _show(tables.audit_table(result), Text(""), *(Text(str(problem)) for problem in result.problems))
        _show(_summary(result))
    raise typer.Exit(result.exit_code)


@app.command()
def gate(
    context: typer.Context,
    revision: Revision = None,
    changed: Changed = False,
    reports: Reports = None,
    jobs: Jobs = None,
    as_json: AsJson = False,
) -> None:
    """Measure as `audit` does, and answer with the exit code: 0 as expected, 1 a claim fell, 2 the harness failed."""
    laboratory: Laboratory = context.obj
    if revision is not None and not changed:
        raise typer.BadParameter(f"{revision!r} is the revision for --changed: gate --changed {revision}")
    selection = select(laboratory, laboratory.folder.parent, revision or "HEAD") if changed else None
    affected = None if selection is None else selection.claim_ids
    shelf = _shelf(laboratory, reports)
    result = _run_audit(laboratory, shelf, False, jobs, affected)
    kills = standing(Bench(laboratory), shelf)
    result = replace(result, problems=(*result.problems, *kills.problems))
    chosen = None if selection is None else f"measured {result.measured} of {len(result.records)}: {selection.reason}"
    if as_json:
        notes = {"notes": list(kills.notes)} if kills.notes else {}
        _show({**_outcome(result.problems), **notes, **({} if chosen is None else {"selection": chosen})})
    else:
        _show(*(Text(str(problem)) for problem in result.problems), *map(Text, kills.notes))
        _show(*filter(None, (chosen, _summary(result))))
    raise typer.Exit(result.exit_code)


@app.command()
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
    bench, processes = Bench(context.obj), jobs or _usable_cores()
    with _progress_bar() as advance:
        if fault is None:
            shelf = _shelf(context.obj, reports)
            result = run_matrix(bench, shelf, update=update, processes=processes, on_progress=advance)
        else:
            result = run_fault(bench, fault, processes=processes, on_progress=advance)
    _show(*([result.as_object()] if as_json else kill_tables.parts(result)))
    raise typer.Exit(result.exit_code)


@app.command()
def report(
    context: typer.Context,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; compare with the committed report.")] = False,
    reports: Reports = None,
    as_json: AsJson = False,
) -> None:
    """Render the reports from the committed evidence; measures nothing."""
    shelf, bench = _shelf(context.obj, reports), Bench(context.obj)
    context.obj.check()
    committed = load_folder(shelf.evidence)
    records = committed_records(context.obj, committed)
    problems = [problem for record in records for problem in problems_of(record)]
    if check:
        problems = problems or check_report(shelf, records, committed)
    elif not as_json:
        write_report(shelf, records)
        write_kill_report(bench, shelf)
    problems += standing(bench, shelf).problems
    if as_json:
        _write(JsonReport().format(records))
    for problem in problems:
        _complain(str(problem))
    raise typer.Exit(exit_code_of(problems))


def _shelf(laboratory: Laboratory, reports: Path | None) -> Shelf:
    return Shelf((reports or laboratory.folder.parent / "reports").absolute())


def _run_audit(
    laboratory: Laboratory, shelf: Shelf, update: bool, jobs: int | None, affected: frozenset[str] | None = None
) -> Audit:
    processes = jobs or _usable_cores()
    with _progress_bar() as advance:
        return audit(laboratory, shelf, update=update, processes=processes, on_progress=advance, affected=affected)


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _progress_bar() -> Iterator[Callable[[int, int], None]]:
    console = Console(stderr=True)
    columns = (TextColumn("measuring"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("measuring", total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)


def _outcome(problems: Sequence[Problem]) -> dict[str, Any]:
    return {"exit_code": exit_code_of(problems), "problems": [asdict(problem) for problem in problems]}


def _verdict_line(record: Record) -> Text:
    claim: Claim = record.claim
    verdict = record.verdict.value if record.verdict else "NO EVIDENCE"
    line = Text.assemble("verdict: ", tables.word(verdict), f" (expected {claim.expected_verdict.value})")
    if record.fix_grade is not None and claim.expected_fix_grade is not None:
        grade = tables.word(record.fix_grade.value)
        line = Text.assemble(line, "\nfix: ", grade, f" (expected {claim.expected_fix_grade.value})")
    return line


def _summary(result: Audit) -> str:
    expected = sum(record.as_expected for record in result.records)
    fell = "a claim fell" if expected < len(result.records) else "the committed evidence or reports are out of date"
    words = {CLAIM_FELL: fell, HARNESS_FAILED: "the harness failed"}
    return f"{expected} of {len(result.records)} claims as expected; {words.get(result.exit_code, 'nothing to report')}"


def _show(*parts: Any) -> None:
    for part in parts:
        if isinstance(part, (dict, list)):
            _write(canonical_json(part))
        else:
            _print(part)


def _print(part: Any) -> None:
    """Sentences stay on one line; tables are as wide as the terminal, or as `PLAIN_WIDTH` where there is none."""
    terminal = sys.stdout.isatty()
    console = Console(width=None if terminal else PLAIN_WIDTH, markup=False, highlight=False, emoji=False)
    with console.capture() as capture:
        console.print(part, soft_wrap=isinstance(part, (str, Text)))
    _write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))


def _write(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has what it wanted; the verdict stands
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(line: str) -> None:
    sys.stderr.write(f"rlverify: {line}\n")


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; every error becomes one line on stderr."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    outcome = attempt(lambda: _invoke(arguments))
    if isinstance(outcome, Crash):
        _complain(f"the harness failed: {outcome.line}")
        return HARNESS_FAILED
    return outcome


def _invoke(arguments: Sequence[str] | None) -> int:
    code: object = INTERRUPTED
    try:
        app(arguments, prog_name="rlverify")
    except SystemExit as exit_:
        code = exit_.code
    except (HarnessError, OSError) as error:
        _complain(str(error))
        return HARNESS_FAILED
    except KeyboardInterrupt:
        pass
    if code == INTERRUPTED:
        _complain("interrupted before the end; run it again")
    return code if isinstance(code, int) else HARNESS_FAILED
