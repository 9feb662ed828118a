"""Measures every claim, and compares with what is expected and with what is committed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, TypeAlias

from rlverify.evidence.evidence_files import is_committable, load_full_audit
from rlverify.evidence.files import check_writable, prepare_working_folder
from rlverify.evidence.summarising import summarise, summarise_figure
from rlverify.gating.committed_evidence import CODE, Committed, full_audit_of, replace_committed
from rlverify.gating.git_base import Base
from rlverify.gating.problem_rules import compared, notes_of, problems_of, problems_of_all
from rlverify.gating.replay import Repeats, Replayed, forced_by, revision_of, seeds_to_repeat
from rlverify.project.code import CurrentCode, machine
from rlverify.project.content import Project
from rlverify.project.settings import ReportPaths
from rlverify.records.claims import Claim
from rlverify.records.measured import Run
from rlverify.records.problems import Problem
from rlverify.reporting.outcome import Outcome
from rlverify.running.executors import Executor, Progress, no_progress
from rlverify.running.paired_runs import FigureRuns, seconds_of_claims, seeds_of
from rlverify.running.runner import run_claims
from rlverify.verdicts.verdict import Record


def measure(
    project: Project,
    claims: Sequence[Claim],
    kept_runs: Path,
    *,
    code: CurrentCode,
    executor: Executor,
    on_progress: Progress,
    on_figures: Progress,
    fail_fast: bool,
    repeats: FigureRuns,
) -> tuple[dict[str, Record], dict[str, float], dict[str, float]]:
    """Measure claims, those with a probe first.

    :param kept_runs: folder of the paired runs that have ended, which are not made again
    :param fail_fast: stop after a claim with a probe that is not as expected; those that have not ended are left out
    :param repeats: runs of other figures, which are made beside those of the probes
    :returns: the records of the claims that were measured, by id; the seconds of the paired runs of each figure, by its
        id, as `seconds_of_claims` gives them; and the mean time of a run of each experiment, by its name
    """
    probed, figures = ([claim for claim in claims if (claim.figure is None) == wanted] for wanted in (True, False))

    def is_wrong(claim: Claim, runs: Sequence[Run]) -> bool:
        return bool(problems_of(Record(claim, summarise(claim, runs))))

    given: Any = {"stop": is_wrong if fail_fast else None, "beside": repeats.jobs()}
    runs = run_claims(project, probed, executor=executor, on_progress=on_progress, **given)
    if len(runs) < len(probed):
        probed, figures = [claim for claim in probed if claim.id in runs], []
    paired = FigureRuns(project, kept_runs, seeds_of(figures), code=code).run(executor, on_figures)
    records = {each.id: Record(each, summarise(each, runs[each.id]), runs=runs[each.id]) for each in probed}
    records |= {each.id: Record(each, summarise_figure(each, paired[each.experiment])) for each in figures}
    seconds = seconds_of_claims(figures, (run for found in paired.values() for run in found))
    of_runs = {name: round(fmean(run.seconds for run in found), 1) for name, found in paired.items()}
    return records, seconds, of_runs


Level: TypeAlias = Literal["quick", "full"]
"""How much is measured: everything but the figures, which take an hour, or these too."""


def audit(
    project: Project,
    paths: ReportPaths,
    *,
    executor: Executor,
    on_progress: Progress,
    update: bool = False,
    base: Base | None = None,
    level: Level = "quick",
    on_figures: Progress = no_progress,
    chosen: frozenset[str] | None = None,
    fail_fast: bool = False,
) -> Outcome:
    """Measure claims; compare with the committed evidence and reports, or replace them.

    Where a claim could not be measured, an update keeps its committed evidence. The quick level keeps the evidence of
    figures; without an update it repeats some of their runs, which `rlverify.gating.replay` chooses.

    :param base: the commit that asks for runs of the figures of which claim, experiment or evidence has changed
    :param chosen: ids of the claims that this is about, where not all: others are neither measured nor compared, an
        update keeps their evidence, and the report, which is about all claims, is not compared
    :param fail_fast: stop once a claim with a probe is not as expected; claims that were not measured are left out
    :raises HarnessError: if the catalogue is broken, a folder cannot be written or the code is changed meanwhile;
        nothing has been replaced then
    """
    warnings = project.check()
    prepare_working_folder(paths.working)
    if update:
        check_writable(paths.evidence)
    committed, code = Committed(project, paths), CurrentCode(project)
    claims = [claim for claim in project.claims if chosen is None or claim.id in chosen]
    ids = {claim.id for claim in claims}
    others = [committed.record(claim) for claim in project.claims if claim.id not in ids]
    keep_figures = level == "quick"
    kept = {each.id: committed.record(each) for each in claims if each.figure is not None and keep_figures}
    repeats = _repeats(committed, code, [] if update else [*kept.values()], base)
    fresh, seconds, of_runs = measure(
        project,
        [claim for claim in claims if claim.id not in kept],
        paths.runs,
        code=code,
        executor=executor,
        on_progress=on_progress,
        on_figures=on_figures,
        fail_fast=fail_fast,
        repeats=repeats.runs,
    )
    code.check_unchanged()
    known = {**kept, **fresh}
    records, notes = tuple(known[each.id] for each in claims if each.id in known), list(warnings)
    if left := len(claims) - len(known):
        notes.append(f"a claim is not as expected, so {left} of {len(claims)} claims were not measured")
    if update:
        full_audit = full_audit_of(project, code, of_runs) if level == "full" else None
        replace_committed(committed, records, others, full_audit)
        problems, notes = problems_of_all(records), [*notes, *notes_of(records)]
        return Outcome(records, tuple(problems), notes=tuple(notes), seconds=seconds)
    is_enough = fail_fast and any(map(problems_of, fresh.values()))
    again = Replayed({}, 0, ()) if is_enough else repeats.compared(executor, on_figures)
    problems = [*problems_of_all(records, committed.evidence), *again.problems]
    problems += _compare_all(committed, records, complete=not others)
    notes += notes_of(records)
    return Outcome(
        records,
        tuple(problems),
        notes=tuple(notes),
        seconds={**seconds, **again.seconds},
        committed=committed.evidence,
        repeated=len(again.seconds),
        exact=again.exact,
    )


def _repeats(committed: Committed, code: CurrentCode, kept: Sequence[Record], base: Base | None) -> Repeats:
    """Return the runs of figures to repeat, which the base and the revision choose."""
    project, paths = committed.project, committed.paths
    figures = [(each.claim, each.evidence) for each in kept if each.evidence is not None and not each.misfits]
    forced = forced_by(base, project, paths, figures) if base is not None else {}
    last = load_full_audit(paths.reports)
    seeds = seeds_to_repeat(figures, revision_of(project, figures), forced, last.seconds)
    runs_of = partial(FigureRuns, project, paths.runs, code=code, keep=False)
    same = last.machine == machine() and last.libraries == code.libraries
    return Repeats(figures, runs_of(seeds), runs_of, same)


def _compare_all(committed: Committed, records: Sequence[Record], *, complete: bool) -> list[Problem]:
    """Where records differ from the committed evidence, and the reports from that if the records are complete."""
    problems: list[Problem] = []
    for record in records:
        if record.evidence is not None and is_committable(record.evidence):
            problems += compared(record, committed.evidence.get(record.claim.id))
    if problems or not complete or len(records) < len(committed.project.claims):
        return problems
    return committed.check_report(left_out=CODE)
