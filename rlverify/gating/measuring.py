"""Measures claims, each in its own way: by runs of a probe, or by paired runs of an experiment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from rlverify.evidence.figure_evidence import summarise_figure
from rlverify.evidence.summarising import raw_line, raw_lines, summarise
from rlverify.project.code import CurrentCode
from rlverify.project.content import Project
from rlverify.records.claims import Claim
from rlverify.records.measured import Evidence
from rlverify.records.runs import Run
from rlverify.reporting.record import Record
from rlverify.running.executors import Executor
from rlverify.running.paired_runs import FigureProgress, run_figures, seconds_of_claims, seeds_of
from rlverify.running.runner import Progress, run_claims


@dataclass(frozen=True)
class Measured:
    """What measuring gave.

    :param evidence: of each claim, by its id
    :param runs: of each claim with a probe, by its id
    :param raw: everything that the runs returned, one JSON object a line
    :param seconds: of the paired runs of each figure, by its id, as `seconds_of_claims` gives them
    :param seconds_of_runs: the mean time of a run of each experiment, by its name
    """

    evidence: Mapping[str, Evidence]
    runs: Mapping[str, tuple[Run, ...]]
    raw: str
    seconds: Mapping[str, float]
    seconds_of_runs: Mapping[str, float]

    def record(self, claim: Claim) -> Record:
        """What was measured for one of the claims."""
        return Record(claim, self.evidence[claim.id], runs=self.runs.get(claim.id, ()))


def measure(
    project: Project,
    claims: Sequence[Claim],
    kept_runs: Path,
    *,
    code: CurrentCode,
    executor: Executor,
    on_progress: Progress,
    on_figures: FigureProgress,
    ignore_cache: bool,
    enough: Callable[[Record], bool] | None = None,
) -> Measured:
    """Measure claims, those with a probe first.

    :param kept_runs: folder of the paired runs that have ended, which are not made again
    :param code: the code that is measured
    :param ignore_cache: make those again
    :param enough: whether to stop after a claim with a probe; those that have not ended then are left out
    """
    probed, figures = ([claim for claim in claims if (claim.figure is None) == wanted] for wanted in (True, False))
    stop = _stopping(probed, enough) if enough is not None else None
    runs = run_claims(project, probed, executor=executor, on_progress=on_progress, stop=stop)
    if len(runs) < len(probed):
        probed, figures = [claim for claim in probed if claim.id in runs], []
    paired = run_figures(
        project,
        kept_runs,
        seeds_of(figures),
        executor=executor,
        on_progress=on_figures,
        code=code,
        ignore_cache=ignore_cache,
    )
    evidence = {each.id: summarise(each, runs[each.id]) for each in probed}
    evidence |= {each.id: summarise_figure(each, paired[each.experiment]) for each in figures}
    raw = [raw_lines(claim, runs[claim.id]) for claim in probed]
    raw += [raw_line(run) for found in paired.values() for run in found]
    seconds = seconds_of_claims(figures, (run for found in paired.values() for run in found))
    of_runs = {name: round(fmean(run.seconds for run in found), 1) for name, found in paired.items()}
    return Measured(evidence, runs, "".join(raw), seconds, of_runs)


def _stopping(claims: Sequence[Claim], enough: Callable[[Record], bool]) -> Callable[[str, tuple[Run, ...]], bool]:
    """Whether the runs of a claim, by its id, are enough."""
    claimed = {claim.id: claim for claim in claims}

    def stop(claim_id: str, runs: tuple[Run, ...]) -> bool:
        claim = claimed[claim_id]
        return enough(Record(claim, summarise(claim, runs)))

    return stop
