"""Repeats runs of figures, so that evidence which no run gives is detected without measuring for an hour."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rlverify.evidence.evidence_files import to_json
from rlverify.evidence.figure_evidence import DECIMALS, compare_figures, measured_figure
from rlverify.gating.committed_evidence import Committed
from rlverify.gating.problem_rules import REMEDY_OF_FIGURES
from rlverify.project.fingerprint import digest
from rlverify.records.claims import Claim
from rlverify.records.exit_codes import CLAIM_FELL
from rlverify.records.measured import Evidence
from rlverify.records.problems import Problem
from rlverify.records.runs import PairedRun
from rlverify.running.repeated_runs import repeat_runs
from rlverify.running.runner import Progress, untold

AGREEMENT: Final = 0.01
"""Part of the largest value by which a repeated run may differ, on other machines, if its figure repeats."""
DIFFERS: Final = "repeated runs differ"
CRASHES: Final = "a repeated run crashes"
RUNS_IF_NOT: Final = 8
"""How many runs are repeated of a figure whose runs differ between machines; at most all."""


@dataclass(frozen=True)
class Replayed:
    """Figures of which runs were repeated.

    :param seconds: how long that took, by claim id; figures of one experiment share the time of its runs
    """

    seconds: Mapping[str, float]
    problems: tuple[Problem, ...]


def replay(
    committed: Committed,
    figures: Sequence[tuple[Claim, Evidence]],
    *,
    processes: int,
    on_progress: Progress = untold,
) -> Replayed:
    """Repeat one run of each figure, and compare it with the committed value of its seed.

    Where runs do not repeat between machines and this one differs, more are repeated and their mean is compared.

    :param on_progress: called with the number of runs done and of all
    """
    seeds: dict[str, list[int]] = defaultdict(list)
    for claim, evidence in figures:
        seed = _seed(evidence)
        if seed not in seeds[claim.experiment]:
            seeds[claim.experiment].append(seed)
    code, project, root = committed.code, committed.project, committed.paths.runs
    runs = repeat_runs(project, root, seeds, code, processes=processes, on_progress=on_progress)
    unlike = [pair for pair in figures if not _agrees(*pair, runs)]
    more = {
        claim.experiment: range(min(RUNS_IF_NOT, len(claim.seeds)))
        for claim, _ in unlike
        if claim.figure is not None and not claim.figure.repeats
    }
    runs |= repeat_runs(project, root, more, code, processes=processes, on_progress=on_progress)
    code.check_unchanged()
    problems = [problem for pair in unlike for problem in _problems(*pair, runs)]
    return Replayed(_seconds([claim for claim, _ in figures], runs), tuple(problems))


def _seconds(claims: Sequence[Claim], runs: Mapping[tuple[str, int], PairedRun]) -> dict[str, float]:
    totals: dict[str, float] = defaultdict(float)
    for (experiment, _), run in runs.items():
        totals[experiment] += run.seconds
    shares = Counter(claim.experiment for claim in claims)
    return {claim.id: totals[claim.experiment] / shares[claim.experiment] for claim in claims}


def _seed(evidence: Evidence) -> int:
    """Which run is repeated follows from the evidence, so that a forger cannot choose it."""
    return int(digest([to_json(evidence)]), 16) % len(evidence.seeds)


def _value(claim: Claim, run: PairedRun) -> float | None:
    assert claim.figure is not None
    return dict(run.quantities).get(claim.figure.quantity)


def _agrees(claim: Claim, evidence: Evidence, runs: dict[tuple[str, int], PairedRun]) -> bool:
    assert claim.figure is not None
    assert evidence.figure is not None
    seed = _seed(evidence)
    value = _value(claim, runs[claim.experiment, seed])
    margin = max(claim.figure.tolerance, 10.0**-DECIMALS, AGREEMENT * max(map(abs, evidence.figure.values)))
    return value is not None and abs(value - evidence.figure.values[seed]) <= margin


def _problems(claim: Claim, evidence: Evidence, runs: dict[tuple[str, int], PairedRun]) -> list[Problem]:
    assert claim.figure is not None
    assert evidence.figure is not None
    seed = _seed(evidence)
    run = runs[claim.experiment, seed]
    value = _value(claim, run)
    if value is None:
        sentence = f"{CRASHES}: seed {seed}: {run.error or 'the quantity is missing'}"
        return [Problem(claim.id, CLAIM_FELL, sentence, "verdict")]
    if claim.figure.repeats:
        found = [f"seed {seed} gives {value:.5g} {claim.figure.unit}, committed {evidence.figure.values[seed]:.5g}"]
    else:
        values = [_value(claim, runs[claim.experiment, each]) for each in range(min(RUNS_IF_NOT, len(claim.seeds)))]
        fresh = measured_figure([each for each in values if each is not None], evidence.figure.claimed)
        found = compare_figures(evidence.figure, fresh, claim.figure.tolerance)
        found = [each for each in found if "runs instead of" not in each]
    return [
        Problem(claim.id, CLAIM_FELL, f"{DIFFERS}: {each}", "values", f"if that is right, {REMEDY_OF_FIGURES}")
        for each in found
    ]
