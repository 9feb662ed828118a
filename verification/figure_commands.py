"""The commands about figures, and what `reproduce` does with one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.text import Text

from verification.audit import Problem, Shelf, committed_records, exit_code_of, problems_of
from verification.console import progress_bars, show
from verification.errors import HarnessError
from verification.evidence import load_folder
from verification.exit_codes import HARNESS_FAILED
from verification.figure_evidence import summarise_figure
from verification.figure_tables import plan_table, quantities_table, verdict_lines
from verification.figures import run_figure_here, run_figures
from verification.laboratory import Laboratory
from verification.model import Claim, Figure, PairedRun
from verification.options import AsJson, ClaimId, Jobs, Reports, shelf_of, usable_cores
from verification.power import plan
from verification.report.interface import Record
from verification.report.json import as_object

FIRST_PILOT_SEED = 1000
"""So that no run of a pilot is one of the measurement."""


def reproduce_one(laboratory: Laboratory, claim: Claim, shelf: Shelf, seed: int, as_json: bool) -> int:
    """Make one paired run here and show its quantities beside what is claimed and committed; its exit code."""
    run = run_figure_here(laboratory, claim.experiment, seed)
    record = _committed(laboratory, claim, shelf)
    problems = [Problem(claim.id, HARNESS_FAILED, f"ERROR, seed {seed}: {run.error}")] if run.error else []
    code = exit_code_of(problems)
    if as_json:
        show({**as_object(record), "run": _as_object(run), **_outcome(problems)})
    else:
        show(Text(f"{claim.id}: {claim.title} (seed {seed})\n"), quantities_table(run, claim), Text(""))
        show(verdict_lines(record, "committed"), *(Text(str(problem)) for problem in problems))
    return code


def reproduce_all(laboratory: Laboratory, claim: Claim, shelf: Shelf, jobs: int | None, as_json: bool) -> int:
    """Make all paired runs of a figure that are not kept, and show what they amount to; its exit code."""
    runs = _runs(laboratory, claim, claim.seeds, shelf, jobs)
    record = Record(claim, summarise_figure(claim, runs, *laboratory.digests(claim)))
    problems = problems_of(record)
    if as_json:
        show({**as_object(record), "runs": [_as_object(run) for run in runs], **_outcome(problems)})
    else:
        show(Text(f"{claim.id}: {claim.title}\n"), verdict_lines(record, "measured"))
        show(verdict_lines(_committed(laboratory, claim, shelf), "committed"))
        show(*(Text(str(problem)) for problem in problems))
    return exit_code_of(problems)


def pilot(
    context: typer.Context,
    claim_id: ClaimId,
    seeds: Annotated[int, typer.Option(min=2, max=1000, help="How many paired runs; their seeds start at 1000.")] = 8,
    reports: Reports = None,
    jobs: Jobs = None,
    as_json: AsJson = False,
) -> None:
    """Make some paired runs of a figure, and tell how many its measurement needs."""
    laboratory: Laboratory = context.obj
    claim = laboratory.claim(claim_id)
    if claim.figure is None:
        raise typer.BadParameter(f"{claim.id} is a {claim.kind}; only a figure has a number of runs to plan")
    chosen = range(FIRST_PILOT_SEED, FIRST_PILOT_SEED + seeds)
    runs = _runs(laboratory, claim, chosen, shelf_of(laboratory, reports), jobs)
    values = _values(runs, claim.figure)
    found = plan(values, claim.figure.claimed, claim.figure.runs)
    if as_json:
        show({**asdict(found), "values": values, "runs": [_as_object(run) for run in runs]})
    else:
        show(Text(f"{claim.id}: {claim.title}\n"), plan_table(found, claim, runs))


def _runs(
    laboratory: Laboratory, claim: Claim, seeds: Sequence[int], shelf: Shelf, jobs: int | None
) -> tuple[PairedRun, ...]:
    with progress_bars() as bars:
        found = run_figures(
            laboratory,
            shelf.runs,
            {claim.experiment: seeds},
            processes=jobs or usable_cores(),
            on_progress=bars.figures,
        )
    return found[claim.experiment]


def _values(runs: Sequence[PairedRun], figure: Figure) -> list[float]:
    """The quantity of the claim in every run of a pilot, which must all have ended."""
    for run in runs:
        if run.error is not None:
            raise HarnessError(f"seed {run.seed} of the pilot: {run.error}")
        if figure.quantity not in dict(run.quantities):
            known = ", ".join(repr(name) for name, _ in run.quantities)
            raise HarnessError(f"experiment {run.experiment!r} gives no quantity {figure.quantity!r}, but {known}")
    return [dict(run.quantities)[figure.quantity] for run in runs]


def _committed(laboratory: Laboratory, claim: Claim, shelf: Shelf) -> Record:
    records = committed_records(laboratory, load_folder(shelf.evidence))
    return next(record for record in records if record.claim.id == claim.id)


def _as_object(run: PairedRun) -> dict[str, Any]:
    return asdict(run) | {"quantities": dict(run.quantities)}


def _outcome(problems: Sequence[Problem]) -> dict[str, Any]:
    return {"exit_code": exit_code_of(problems), "problems": [asdict(problem) for problem in problems]}
