"""The commands that measure one claim here and now: `reproduce`, and `pilot` for a figure."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from rlverify.cli import tables
from rlverify.cli.console import ProgressLine, complain, show
from rlverify.cli.options import AsJson, ClaimId, Reports, project_of, report_paths
from rlverify.cli.run_options import Jobs, usable_cores
from rlverify.cli.tables import plan_table, quantities_table, verdict_lines
from rlverify.evidence.files import alone_in
from rlverify.evidence.summarising import summarise, summarise_figure
from rlverify.gating.committed_evidence import Committed
from rlverify.gating.problem_rules import problems_of
from rlverify.gating.replay import RepeatedFigure
from rlverify.project.code import CurrentCode
from rlverify.project.content import Project
from rlverify.project.planting import source_lines
from rlverify.project.settings import ReportPaths
from rlverify.records.claims import Claim
from rlverify.records.errors import HarnessError, UsageError
from rlverify.records.measured import PairedRun
from rlverify.records.problems import HARNESS_FAILED, Problem, exit_code_of, outcome_of
from rlverify.reporting.formats import as_object
from rlverify.reporting.report_data import ReportData, anchor
from rlverify.running.executors import ProcessExecutor
from rlverify.running.paired_runs import FigureRuns, run_figure_once
from rlverify.running.runner import run_claims
from rlverify.verdicts.statistics import plan_measurement
from rlverify.verdicts.verdict import Record


def next_steps(project: Project, claim: Claim, folder: Path) -> list[tuple[str, str]]:
    """(what, where) for a claim that a probe measures."""
    steps = []
    if claim.fault is not None:
        fault = project.fault(claim.fault)
        steps += [("bug", _place(fault.replacement, folder)), ("replaces", fault.target)]
    if claim.documented_fix is not None:
        steps.append(("fix", _place(project.fault(claim.documented_fix).replacement, folder)))
    steps.append(("probe", _place(project.probe(claim.probe), folder)))
    page = project.settings.reports / ReportData((), pages=project.pages).home(claim)
    if page.is_file():
        steps.append(("report", f"{_relative(page, folder)}#{anchor(claim.id)}"))
    return steps


def _place(function: Callable[..., Any], folder: Path) -> str:
    """File and line of a function, below its decorators; its module where it has no source."""
    try:
        _, line = source_lines(function)
    except (OSError, TypeError):
        return function.__module__
    return f"{_relative(Path(inspect.getfile(inspect.unwrap(function))), folder)}:{line}"


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()


FIRST_PILOT_SEED = 1000
"""So that no run of a pilot is one of the measurement."""


def _reproduce_figure(project: Project, claim: Claim, paths: ReportPaths, seed: int, as_json: bool) -> int:
    """Make one paired run, and show its quantities next to what is claimed and committed."""
    run = run_figure_once(project, claim.experiment, seed)
    record = _committed(project, claim, paths)
    problems = _problems_of_run(record, run)
    if as_json:
        show({**as_object(record), "run": _as_object(run), **outcome_of(problems)})
    else:
        show(Text(f"{claim.id}: {claim.title} (seed {seed})\n"), quantities_table(run, record), Text(""))
        show(verdict_lines(record, "committed"), *(Text(str(problem)) for problem in problems))
    return exit_code_of(problems)


def _reproduce_all(project: Project, claim: Claim, paths: ReportPaths, jobs: int | None, as_json: bool) -> int:
    """Make all paired runs of a figure that are not kept, and show the result."""
    committed = _committed(project, claim, paths)
    runs = _runs(project, claim, claim.seeds, paths, jobs)
    record = Record(claim, summarise_figure(claim, runs))
    problems = problems_of(record, committed.evidence)
    if as_json:
        show({**as_object(record), "runs": [_as_object(run) for run in runs], **outcome_of(problems)})
    else:
        show(Text(f"{claim.id}: {claim.title}\n"), verdict_lines(record, "measured"))
        show(verdict_lines(committed, "committed"), *(Text(str(problem)) for problem in problems))
    return exit_code_of(problems)


def _problems_of_run(committed: Record, run: PairedRun) -> list[Problem]:
    """As `gate` reports them where the evidence has this run; elsewhere a crash is a failure of the harness."""
    claim, evidence = committed.claim, committed.evidence
    assert claim.figure is not None
    if evidence is not None and not committed.misfits and run.seed in claim.seeds:
        return RepeatedFigure(claim, evidence).first_problem([run])
    if run.value_of(claim.figure.quantity) is not None:
        return []
    return [Problem(claim.id, HARNESS_FAILED, f"seed {run.seed}: {run.why_without(claim.figure.quantity)}")]


def pilot(
    context: typer.Context,
    claim_id: ClaimId,
    seeds: Annotated[int, typer.Option(min=2, max=1000, help="How many paired runs; their seeds start at 1000.")] = 8,
    reports: Reports = None,
    jobs: Jobs = None,
    as_json: AsJson = False,
) -> None:
    """Make some paired runs of a figure, and say how many its measurement needs."""
    project = project_of(context)
    claim = project.claim(claim_id)
    if claim.figure is None:
        raise UsageError(f"{claim.id} is a {claim.kind}; only a figure has a number of runs to plan")
    chosen = range(FIRST_PILOT_SEED, FIRST_PILOT_SEED + seeds)
    runs = _runs(project, claim, chosen, report_paths(project, reports), jobs)
    for run in runs:
        if run.value_of(claim.figure.quantity) is None:
            about = f"seed {run.seed} of the pilot:" if run.error else f"experiment {run.experiment!r}"
            raise HarnessError(f"{about} {run.why_without(claim.figure.quantity)}")
    values = [dict(run.quantities)[claim.figure.quantity] for run in runs]
    found = plan_measurement(values, claim.figure.claimed, claim.figure.runs)
    if as_json:
        show({**asdict(found), "values": values, "runs": [_as_object(run) for run in runs]})
    else:
        show(Text(f"{claim.id}: {claim.title}\n"), plan_table(found, claim, runs))


def _runs(
    project: Project, claim: Claim, seeds: Sequence[int], paths: ReportPaths, jobs: int | None
) -> tuple[PairedRun, ...]:
    with alone_in(paths.working, complain):
        runs = FigureRuns(project, paths.runs, {claim.experiment: seeds}, code=CurrentCode(project))
        return runs.run(ProcessExecutor(jobs or usable_cores()), ProgressLine().figures)[claim.experiment]


def _committed(project: Project, claim: Claim, paths: ReportPaths) -> Record:
    return next(record for record in Committed(project, paths).records if record.claim.id == claim.id)


def _as_object(run: PairedRun) -> dict[str, Any]:
    return asdict(run) | {"quantities": dict(run.quantities)}


def reproduce(
    context: typer.Context,
    claim_id: ClaimId,
    seed: Annotated[int | None, typer.Option(min=0, max=2**32 - 1, help="[default: the claim's first seed]")] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Of a figure: all paired runs; kept, so that it resumes.")
    ] = False,
    reports: Reports = None,
    jobs: Jobs = None,
    as_json: AsJson = False,
) -> None:
    """Measure one claim here and now, with one seed, and show what was observed."""
    project = project_of(context)
    claim = project.claim(claim_id)
    paths = report_paths(project, reports)
    if every and claim.figure is None:
        raise UsageError(f"--all is for figures, and {claim.id} is a {claim.kind}; give --seed instead")
    if every:
        raise typer.Exit(_reproduce_all(project, claim, paths, jobs, as_json))
    make = _reproduce_with_probe if claim.figure is None else _reproduce_figure
    raise typer.Exit(make(project, claim, paths, claim.seeds[0] if seed is None else seed, as_json))


def _reproduce_with_probe(project: Project, claim: Claim, paths: ReportPaths, seed: int, as_json: bool) -> int:
    measured = replace(claim, seeds=(seed,))
    runs = run_claims(project, [measured], executor=ProcessExecutor(1), on_progress=lambda *_: None)[claim.id]
    record = Record(claim, summarise(claim, runs))
    problems = problems_of(record, Committed(project, paths).record(claim).evidence)
    if as_json:
        show({**as_object(record), "runs": [asdict(run) for run in runs], **outcome_of(problems)})
    else:
        show(Text(f"{claim.id}: {claim.title} (seed {seed})\n"))
        if any(run.observations for run in runs):
            show(tables.runs_text(runs), Text(""))
        show(verdict_lines(record))
        if record.has_verdict:
            show(Text("\nwhere to look:"), tables.steps_text(next_steps(project, claim, Path.cwd())))
        show(*(Text(str(problem)) for problem in problems))
    return exit_code_of(problems)
