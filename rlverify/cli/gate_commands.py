"""The commands that measure all claims: `audit`, and `gate` for CI."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.text import Text

from rlverify.cli import options, run_options, tables
from rlverify.cli.console import ProgressLine, complain, mention, show
from rlverify.evidence.files import alone_in
from rlverify.gating.audit import audit
from rlverify.gating.committed_evidence import unsupported_date
from rlverify.gating.fallen import outcome_of_audit
from rlverify.gating.git_base import Base, UnknownChangesError, find_base, known_base
from rlverify.gating.weakening import weakened_by
from rlverify.kill_matrix.committed import committed_problems, undetected, unwritten
from rlverify.kill_matrix.plan import MatrixPlan
from rlverify.kill_matrix.run import run_changed
from rlverify.project.content import Project
from rlverify.project.settings import ReportPaths, suites_alone
from rlverify.records.errors import BrokenCodeError
from rlverify.records.problems import CLAIM_FELL, HARNESS_FAILED, Problem, Weakening, few, outcome_of
from rlverify.reporting.formats import RUN_FORMATS, as_object
from rlverify.reporting.outcome import Outcome, lines_of
from rlverify.running.executors import Executor, in_threads


def audit_command(
    context: typer.Context,
    patterns: options.Patterns = None,
    areas: options.Areas = None,
    update: Annotated[bool, typer.Option("--update", help="Replace the committed evidence and reports.")] = False,
    level: options.LevelOption = "quick",
    junit: run_options.JUnitFile = None,
    sarif: run_options.SarifFile = None,
    summary: run_options.SummaryFile = None,
    reports: options.Reports = None,
    jobs: run_options.Jobs = None,
    where: run_options.Where = "processes",
    ray_address: run_options.RayAddress = None,
    as_json: options.AsJson = False,
) -> None:
    """Measure claims; compare with what is expected and with what is committed."""
    files = run_options.check_outputs({"junit": junit, "sarif": sarif, "summary": summary})
    project = options.project_of(context)
    chosen = options.chosen_ids(project, patterns, areas)
    paths = options.report_paths(project, reports)
    base = known_base(project)
    with run_options.executor_of(where, jobs, ray_address) as executor:
        result = _run_audit(context, paths, executor, base=base, chosen=chosen, level=level, update=update)
    if missing := [str(each) for each in _incomplete(MatrixPlan(project)) if chosen is None or each.subject in chosen]:
        result = replace(result, notes=(*result.notes, f"note: the gate will fail: {few(missing)}"))
    outcome = outcome_of_audit(project, result)
    run_options.write_texts(files, {name: RUN_FORMATS[name](outcome) for name in files})
    if as_json:
        content = {"claims": [as_object(record) for record in result.records], "notes": list(outcome.notes)}
        show({**content, **outcome_of(outcome.problems)})
    else:
        show(tables.audit_table(result.records), Text(""))
        if any(record.claim.figure is not None for record in result.records):
            show(tables.figures_table(result.records), Text(""))
        show(*map(Text, lines_of(outcome, run_options.places(files))))
    raise typer.Exit(result.exit_code)


def gate(
    context: typer.Context,
    patterns: options.Patterns = None,
    areas: options.Areas = None,
    base: options.Revision = None,
    no_weakening: options.NoWeakening = False,
    fail_fast: options.FailFast = False,
    level: options.LevelOption = "quick",
    junit: run_options.JUnitFile = None,
    sarif: run_options.SarifFile = None,
    summary: run_options.SummaryFile = None,
    json_file: run_options.JsonFile = None,
    reports: options.Reports = None,
    jobs: run_options.Jobs = None,
    where: run_options.Where = "processes",
    ray_address: run_options.RayAddress = None,
) -> None:
    """Measure as `audit` does, and answer with the exit code: 0 as expected, 1 a claim fell, 2 the harness failed.

    Every claim with a probe is measured. Of figures, runs are repeated: of those of which claim, experiment or evidence
    differs from REV, and of about ten experiments that the number of commits chooses.
    """
    files = run_options.check_outputs({"junit": junit, "sarif": sarif, "summary": summary, "json": json_file})
    if (alone := suites_alone(context.obj)) is not None:
        with run_options.executor_of(where, jobs, ray_address) as executor:
            raise typer.Exit(_gate_of_suites(*alone, files, executor))
    project = options.project_of(context)
    chosen = options.chosen_ids(project, patterns, areas)
    try:
        project.check()
    except BrokenCodeError as error:
        _answer(Outcome((), (Problem(error.place, CLAIM_FELL, error.reason),)), files)
    suites = project.settings.suites if chosen is None else ()
    if suites:
        _require(suites, project.root)
    paths = options.report_paths(project, reports)
    since = _base(project, base)
    with run_options.executor_of(where, jobs, ray_address) as executor:
        result = _run_audit(context, paths, executor, level=level, base=since, chosen=chosen, fail_fast=fail_fast)
        result = _with_catalogue_and_tests(project, paths, result, chosen, since, executor)
        if suites:
            result = _with_suites(project, result)
        weakened = weakened_by(project, paths, since, result.records) if since is not None else ()
        result = replace(result, weakened=weakened)
        if no_weakening:
            result = replace(result, problems=(*result.problems, *_not_allowed(since, weakened)))
        outcome = outcome_of_audit(project, result, _repeated(result), since, executor)
    _answer(outcome, files)


def _not_allowed(since: Base | None, weakened: Sequence[Weakening]) -> list[Problem]:
    """What ``--no-weakening`` makes an error."""
    if since is None:
        return [Problem("--no-weakening", HARNESS_FAILED, "Git knows no commit to compare with; name one with --base")]
    sentence = f"the change since {since.commit[:10]} weakens, or may weaken, what is listed"
    return [Problem("--no-weakening", CLAIM_FELL, sentence)] * bool(weakened)


def _gate_of_suites(root: Path, names: tuple[str, ...], files: Mapping[str, Path], executor: Executor) -> int:
    """Run the suites of a project that has nothing else."""
    from rlverify.cli.check_command import run_and_report
    from rlverify.cli.checking import Asked

    sys.path += [str(folder) for folder in (root, root / "src") if folder.is_dir() and str(folder) not in sys.path]
    return run_and_report(Asked(names, root), files, executor)


def _base(project: Project, asked: str | None) -> Base | None:
    """The commit to compare with; where Git does not know the commit that a push replaced, a line says so."""
    if not asked or not asked.strip("0"):  # GitHub names the commit before a new branch by zeros
        return known_base(project)
    try:
        return find_base(project, asked)
    except UnknownChangesError as error:
        if not re.fullmatch("[0-9a-f]{40}", asked):
            raise
        mention(f"note: {error}; of figures, only a sample is repeated")
        return None


def _repeated(result: Outcome) -> str:
    """Of how many figures a run was repeated, as a sentence; empty where no figure keeps its evidence."""
    figures = sum(each.claim.figure is not None for each in result.records)
    told = f"of {result.repeated} of {figures} figures, a run was repeated"
    return f"{told}; {result.exact} gave the committed value exactly" if result.repeated else ""


def _answer(outcome: Outcome, files: Mapping[str, Path]) -> NoReturn:
    """Write the files, print what happened unless JSON is printed, and end with the exit code."""
    run_options.write_texts(files, {name: RUN_FORMATS[name](outcome) for name in files})
    if run_options.STDOUT not in files.values():
        show(*map(Text, lines_of(outcome, run_options.places(files))))
    raise typer.Exit(outcome.exit_code)


def _with_catalogue_and_tests(
    project: Project,
    paths: ReportPaths,
    result: Outcome,
    chosen: frozenset[str] | None,
    since: Base | None,
    executor: Executor,
) -> Outcome:
    """Add what is wrong with the texts of the claims, their tests and the kill matrix; plant changed faults again."""
    matrix_plan = MatrixPlan(project)
    found = [*_incomplete(matrix_plan), *committed_problems(matrix_plan, paths)]
    if chosen is not None:
        found = [problem for problem in found if problem.subject in chosen]
    found += unsupported_date(project, paths)
    notes = result.notes
    if since is not None and not (result.problems or found):  # else the tests fail for the same reason
        with alone_in(paths.working, complain):
            planted, fallen = run_changed(
                matrix_plan, since, chosen, executor=in_threads(executor), on_progress=ProgressLine().probes
            )
        found += fallen
        notes += (f"note: faults planted again: {planted}, as they, their targets or their tests changed",) * bool(
            planted
        )
    return replace(result, problems=(*result.problems, *found), notes=notes)


def _require(suites: Sequence[str], root: Path) -> None:
    """Import the suites, so that a mistake in one is an error before anything is measured."""
    from rlverify.cli.checking import Asked

    Asked((*suites,), root).imported()


def _with_suites(project: Project, result: Outcome) -> Outcome:
    """Add the checks of the project's suites, and what is not as expected in them."""
    from rlverify.cli.checking import run_suites

    checks, problems, note = run_suites(project.settings.suites, project.root)
    return replace(result, problems=(*result.problems, *problems), notes=(*result.notes, note), checks=checks)


def _incomplete(matrix_plan: MatrixPlan) -> list[Problem]:
    """What claims lack for the gate, though they can be measured without."""
    return [*unwritten(matrix_plan.project), *undetected(matrix_plan)]


def _run_audit(context: typer.Context, paths: ReportPaths, executor: Executor, **given: Any) -> Outcome:
    with alone_in(paths.working, complain):
        lines = ProgressLine()
        shown: Any = {"on_progress": lines.probes, "on_figures": lines.figures}
        return audit(options.project_of(context), paths, executor=executor, **shown, **given)
