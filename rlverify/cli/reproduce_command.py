"""The command that measures one claim here and now."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from rlverify.cli import tables
from rlverify.cli.console import show
from rlverify.cli.executing import Jobs
from rlverify.cli.figure_commands import reproduce_all, reproduce_one
from rlverify.cli.next_steps import next_steps
from rlverify.cli.options import (
    AsJson,
    ClaimId,
    Reports,
    claim_of,
    project_of,
    report_paths,
)
from rlverify.evidence.summarising import summarise
from rlverify.gating.committed_evidence import readable_evidence
from rlverify.gating.problem_rules import problems_of
from rlverify.project.content import Project
from rlverify.project.settings import ReportPaths
from rlverify.records.claims import Claim
from rlverify.records.errors import UsageError
from rlverify.records.problems import exit_code_of, outcome_of
from rlverify.reporting.json_report import as_object
from rlverify.reporting.record import Record
from rlverify.running.executors import ProcessExecutor
from rlverify.running.runner import run_claims


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
    claim = claim_of(context, claim_id)
    paths = report_paths(project, reports)
    if claim.figure is not None:
        if every:
            raise typer.Exit(reproduce_all(project, claim, paths, jobs, as_json))
        raise typer.Exit(reproduce_one(project, claim, paths, seed or 0, as_json))
    if every:
        raise UsageError(f"--all is for figures, and {claim.id} is a {claim.kind}; give --seed instead")
    _reproduce_with_probe(project, claim, paths, claim.seeds[0] if seed is None else seed, as_json)


def _reproduce_with_probe(project: Project, claim: Claim, paths: ReportPaths, seed: int, as_json: bool) -> None:
    measured = replace(claim, seeds=(seed,))
    runs = run_claims(project, [measured], executor=ProcessExecutor(1), on_progress=lambda *_: None)[claim.id]
    record = Record(claim, summarise(claim, runs))
    problems = problems_of(record, readable_evidence(paths, claim))
    if as_json:
        show({**as_object(record), "runs": [asdict(run) for run in runs], **outcome_of(problems)})
    else:
        show(Text(f"{claim.id}: {claim.title} (seed {seed})\n"))
        if any(run.observations for run in runs):
            show(tables.runs_text(runs), Text(""))
        show(_verdict_line(record))
        if record.has_verdict:
            show(Text("\nwhere to look:"), tables.steps_text(next_steps(project, claim, Path.cwd())))
        show(*(Text(str(problem)) for problem in problems))
    raise typer.Exit(exit_code_of(problems))


def _verdict_line(record: Record) -> Text:
    claim: Claim = record.claim
    verdict = record.verdict.value if record.verdict else "NO EVIDENCE"
    line = Text.assemble("verdict: ", tables.word(verdict), f" (expected {claim.expected_verdict.value})")
    if record.fix_grade is not None and claim.expected_fix_grade is not None:
        grade = tables.word(record.fix_grade.value)
        line = Text.assemble(line, "\nfix: ", grade, f" (expected {claim.expected_fix_grade.value})")
    return line
