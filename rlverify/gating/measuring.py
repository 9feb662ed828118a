"""Measures claims, each in its own way: by runs of a probe, or by paired runs of an experiment."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rlverify.evidence.figure_evidence import summarise_figure
from rlverify.evidence.summarising import raw_lines, summarise
from rlverify.project.content import Project
from rlverify.records.claims import Claim
from rlverify.records.measured import Evidence
from rlverify.running.paired_runs import FigureProgress, run_figures, seeds_of
from rlverify.running.runner import Progress, run_claims


@dataclass(frozen=True)
class Measured:
    """What measuring gave.

    :param evidence: of each claim, by its id
    :param raw: everything that the runs returned, one JSON object a line
    """

    evidence: Mapping[str, Evidence]
    raw: str


def measure(
    project: Project,
    claims: Sequence[Claim],
    kept_runs: Path,
    *,
    processes: int,
    on_progress: Progress,
    on_figures: FigureProgress,
    afresh: bool = False,
) -> Measured:
    """Measure claims, those with a probe first.

    :param kept_runs: folder of the paired runs that have ended, which are not made again
    :param afresh: ignore those, and measure again
    """
    probed, figures = ([claim for claim in claims if (claim.figure is None) == wanted] for wanted in (True, False))
    runs = run_claims(project, probed, processes=processes, on_progress=on_progress)
    paired = run_figures(
        project, kept_runs, seeds_of(figures), processes=processes, on_progress=on_figures, afresh=afresh
    )
    evidence = {each.id: summarise(each, runs[each.id], *project.digests(each)) for each in probed}
    evidence |= {each.id: summarise_figure(each, paired[each.experiment], *project.digests(each)) for each in figures}
    raw = [raw_lines(claim, runs[claim.id]) for claim in probed]
    raw += [json.dumps(asdict(run), sort_keys=True) + "\n" for found in paired.values() for run in found]
    return Measured(evidence, "".join(raw))
