"""The command line: every command is registered here, and only this package prints and exits.

Exit codes: 0 as expected; 1 a claim fell, or something committed is out of date; 2 the harness failed and no claim fell
(a claim could not be measured, the catalogue is broken, a folder cannot be written); 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.text import Text

from rlverify.cli import options, outputs, tables
from rlverify.cli.check_command import check, gate_of_suites
from rlverify.cli.console import Lines, complain, mention, show
from rlverify.cli.matrix_command import matrix
from rlverify.cli.repin_command import repin
from rlverify.cli.report_command import report
from rlverify.cli.reproduce_command import pilot, reproduce
from rlverify.cli.scan_command import scan
from rlverify.cli.start_commands import init, new
from rlverify.evidence.files import alone_in
from rlverify.gating.audit import Audit, audit
from rlverify.gating.fallen import outcome_of_audit
from rlverify.gating.git_base import Base, UnknownChangesError, find_base, known_base
from rlverify.kill_matrix.committed import committed_problems, undetected, unwritten
from rlverify.kill_matrix.plan import MatrixPlan
from rlverify.kill_matrix.run import run_changed
from rlverify.project.content import Project
from rlverify.project.settings import ReportPaths, suites_alone
from rlverify.records.attempts import Crash, attempt
from rlverify.records.errors import BrokenCodeError, HarnessError
from rlverify.records.problems import AS_EXPECTED, CLAIM_FELL, HARNESS_FAILED, INTERRUPTED, Problem, few, outcome_of
from rlverify.reporting.formats import RUN_FORMATS, as_object
from rlverify.reporting.outcome import Case, Outcome, lines_of
from rlverify.running.executors import Executor, in_threads

app = typer.Typer(
    help="Re-inject every known bug, and see whether its check catches it.",
    epilog=(__doc__ or "").partition("\n\n")[2],
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        show(f"rlverify {metadata.version('rlverify')}")
        raise typer.Exit


@app.callback()
def choose_project(
    context: typer.Context,
    project: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A folder of the project. [default: the current folder]")
    ] = None,
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    context.obj = project or Path.cwd()


@app.command("list")
def list_claims(
    context: typer.Context,
    patterns: options.Patterns = None,
    areas: options.Areas = None,
    as_json: options.AsJson = False,
) -> None:
    """List claims: all of them, or those that are named."""
    claims = options.selected(options.project_of(context), patterns, areas)
    show({"claims": [asdict(claim) for claim in claims]} if as_json else tables.claims_table(claims))


@app.command("show")
def show_claim(context: typer.Context, claim_id: options.ClaimId, as_json: options.AsJson = False) -> None:
    """Show one claim: what is said, where, and how it is tested."""
    claim = options.claim_of(context, claim_id)
    if as_json:
        show(asdict(claim))
    else:
        conditions = [each for each in options.project_of(context).claims if each.condition_of == claim.id]
        show(Text(f"{claim.id}: {claim.title}\n"), tables.claim_table(claim, conditions))


app.command()(reproduce)
app.command()(pilot)


@app.command("audit")
def audit_command(
    context: typer.Context,
    patterns: options.Patterns = None,
    areas: options.Areas = None,
    update: Annotated[bool, typer.Option("--update", help="Replace the committed evidence and reports.")] = False,
    level: options.LevelOption = "quick",
    ignore_cache: options.IgnoreCache = False,
    junit: outputs.JUnitFile = None,
    sarif: outputs.SarifFile = None,
    summary: outputs.SummaryFile = None,
    reports: options.Reports = None,
    jobs: options.Jobs = None,
    where: options.Where = "processes",
    ray_address: options.RayAddress = None,
    as_json: options.AsJson = False,
) -> None:
    """Measure claims; compare with what is expected and with what is committed."""
    files = outputs.check_outputs({"junit": junit, "sarif": sarif, "summary": summary})
    project = options.project_of(context)
    chosen = options.chosen_ids(project, patterns, areas)
    paths = options.report_paths(project, reports)
    base = known_base(project)
    with options.executor_of(where, jobs, ray_address) as executor:
        given: Any = {"level": level, "update": update, "ignore_cache": ignore_cache}
        result = _run_audit(context, paths, executor, base=base, chosen=chosen, **given)
    if missing := [str(each) for each in _incomplete(MatrixPlan(project)) if chosen is None or each.subject in chosen]:
        result = replace(result, notes=(*result.notes, f"note: the gate will fail: {few(missing)}"))
    outcome = outcome_of_audit(project, result)
    outputs.write_texts(files, {name: RUN_FORMATS[name](outcome) for name in files})
    if as_json:
        content = {"claims": [as_object(record) for record in result.records], "notes": list(outcome.notes)}
        show({**content, **outcome_of(outcome.problems)})
    else:
        show(tables.audit_table(result), Text(""))
        if any(record.claim.figure is not None for record in result.records):
            show(tables.figures_table(result.records), Text(""))
        show(*map(Text, lines_of(outcome, outputs.places(files))))
    raise typer.Exit(result.exit_code)


@app.command()
def gate(
    context: typer.Context,
    patterns: options.Patterns = None,
    areas: options.Areas = None,
    base: options.Revision = None,
    fail_fast: options.FailFast = False,
    level: options.LevelOption = "quick",
    junit: outputs.JUnitFile = None,
    sarif: outputs.SarifFile = None,
    summary: outputs.SummaryFile = None,
    json_file: outputs.JsonFile = None,
    reports: options.Reports = None,
    jobs: options.Jobs = None,
    where: options.Where = "processes",
    ray_address: options.RayAddress = None,
) -> None:
    """Measure as `audit` does, and answer with the exit code: 0 as expected, 1 a claim fell, 2 the harness failed.

    Every claim with a probe is measured. Of figures, runs are repeated: of those of which claim, experiment or evidence
    differs from REV, and of about ten experiments that the number of commits chooses.
    """
    files = outputs.check_outputs({"junit": junit, "sarif": sarif, "summary": summary, "json": json_file})
    alone = suites_alone(context.obj)
    if alone is not None:
        raise typer.Exit(gate_of_suites(*alone, files, (where, jobs, ray_address)))
    project = options.project_of(context)
    chosen = options.chosen_ids(project, patterns, areas)
    try:
        project.check()
    except BrokenCodeError as error:
        _answer(Outcome((), (Problem(error.place, CLAIM_FELL, error.reason),)), files)
    paths = options.report_paths(project, reports)
    since = _base(project, base)
    with options.executor_of(where, jobs, ray_address) as executor:
        result = _run_audit(context, paths, executor, level=level, base=since, chosen=chosen, fail_fast=fail_fast)
        result = _with_catalogue_and_tests(project, paths, result, chosen, since, executor)
        checks: tuple[Case, ...] = ()
        if project.settings.suites and chosen is None:
            result, checks = _with_suites(project, result)
        outcome = outcome_of_audit(project, result, _repeated(result), since, executor)
    _answer(replace(outcome, checks=checks), files)


def _base(project: Project, asked: str | None) -> Base | None:
    """The commit to compare with; where Git does not know the one that is asked for, a line says so."""
    if not asked:
        return known_base(project)
    try:
        return find_base(project, asked)
    except UnknownChangesError as error:
        mention(f"note: {error}; of figures, only a sample is repeated")
        return None


def _repeated(result: Audit) -> str:
    """Of how many figures a run was repeated, as a sentence; empty where no figure keeps its evidence."""
    figures = sum(each.claim.figure is not None for each in result.records)
    told = f"of {result.repeated} of {figures} figures, a run was repeated"
    return f"{told}; {result.exact} gave the committed value exactly" if result.repeated else ""


def _answer(outcome: Outcome, files: Mapping[str, Path]) -> NoReturn:
    """Write the files, print what happened unless JSON is printed, and end with the exit code."""
    outputs.write_texts(files, {name: RUN_FORMATS[name](outcome) for name in files})
    if outputs.STDOUT not in files.values():
        show(*map(Text, lines_of(outcome, outputs.places(files))))
    raise typer.Exit(outcome.exit_code)


def _with_catalogue_and_tests(
    project: Project,
    paths: ReportPaths,
    result: Audit,
    chosen: frozenset[str] | None,
    since: Base | None,
    executor: Executor,
) -> Audit:
    """Add what is wrong with the texts of the claims, their tests and the kill matrix; plant changed faults again."""
    matrix_plan = MatrixPlan(project)
    found = [*_incomplete(matrix_plan), *committed_problems(matrix_plan, paths)]
    if chosen is not None:
        found = [problem for problem in found if problem.subject in chosen]
    notes = result.notes
    if since is not None and not (result.problems or found):  # else the tests fail for the same reason
        with alone_in(paths.working, complain):
            planted, fallen = run_changed(
                matrix_plan, since, chosen, executor=in_threads(executor), on_progress=Lines().probes
            )
        found += fallen
        notes += (f"note: {planted} faults were planted again, as they, their targets or their tests changed",) * bool(
            planted
        )
    return replace(result, problems=(*result.problems, *found), notes=notes)


def _with_suites(project: Project, result: Audit) -> tuple[Audit, tuple[Case, ...]]:
    """The result with what is not as expected in the project's suites, and the records of their checks."""
    from rlverify.cli.checking import run_suites

    checks, problems, note = run_suites(project.settings.suites, project.root)
    return replace(result, problems=(*result.problems, *problems), notes=(*result.notes, note)), checks


def _incomplete(matrix_plan: MatrixPlan) -> list[Problem]:
    """What claims lack for the gate, though they can be measured without."""
    return [*unwritten(matrix_plan.project), *undetected(matrix_plan)]


app.command()(init)
app.command()(new)
app.command()(matrix)
app.command()(repin)
app.command()(report)
app.command()(scan)
app.command()(check)


def _run_audit(context: typer.Context, paths: ReportPaths, executor: Executor, **given: Any) -> Audit:
    with alone_in(paths.working, complain):
        lines = Lines()
        shown: Any = {"on_progress": lines.probes, "on_figures": lines.figures, "on_repeats": lines.repeats}
        return audit(options.project_of(context), paths, executor=executor, **shown, **given)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; every error becomes one line on stderr."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    outcome = attempt(lambda: _invoke(arguments))
    if isinstance(outcome, Crash):
        complain(f"the harness failed: {outcome.line}")
        return HARNESS_FAILED
    return outcome


def _invoke(arguments: Sequence[str] | None) -> int:
    code: object = INTERRUPTED
    try:
        app(arguments, prog_name="rlverify")
    except SystemExit as exit_:
        code = exit_.code
        if isinstance(exit_.__context__, BrokenPipeError):  # of which typer makes 1, as if a claim had fallen
            code = AS_EXPECTED if "--help" in (arguments or sys.argv) else HARNESS_FAILED
    except (HarnessError, OSError) as error:
        complain(str(error))
        return CLAIM_FELL if isinstance(error, BrokenCodeError) else HARNESS_FAILED
    except KeyboardInterrupt:
        pass
    if code == INTERRUPTED:
        complain("interrupted before the end; run it again")
    return code if isinstance(code, int) else HARNESS_FAILED
