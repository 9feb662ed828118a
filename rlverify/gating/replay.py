"""Repeats runs of figures, so that evidence which no run gives is detected without measuring for an hour."""

from __future__ import annotations

from collections import defaultdict
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
from rlverify.running.paired_runs import seconds_of_claims
from rlverify.running.repeated_runs import repeat_runs
from rlverify.running.runner import Progress, no_progress

AGREEMENT: Final = 0.01
"""Part of the largest value by which a repeated run may differ, on other machines, if its figure repeats."""
DIFFERS: Final = "repeated runs differ"
CRASHES: Final = "a repeated run crashes"
RUNS_IF_NOT: Final = 8
"""How many runs are repeated of a figure whose runs differ between machines; at most all."""


Runs = Mapping[tuple[str, int], PairedRun]
"""By experiment and seed."""


@dataclass(frozen=True)
class Replayed:
    """Figures of which runs were repeated.

    :param seconds: as `seconds_of_claims` gives them, by claim id
    """

    seconds: Mapping[str, float]
    problems: tuple[Problem, ...]


def replay(
    committed: Committed,
    figures: Sequence[tuple[Claim, Evidence]],
    *,
    processes: int,
    on_progress: Progress = no_progress,
) -> Replayed:
    """Repeat one run of each figure, and compare it with the committed value of its seed.

    Where runs do not repeat between machines and this one differs, more are repeated and their mean is compared.

    :param on_progress: called with the number of runs done and of all
    """
    seeds: dict[str, list[int]] = defaultdict(list)
    for claim, evidence in figures:
        seed = repeated_seed(evidence)
        if seed not in seeds[claim.experiment]:
            seeds[claim.experiment].append(seed)
    code, project, root = committed.code, committed.project, committed.paths.runs
    runs = repeat_runs(project, root, seeds, code, processes=processes, on_progress=on_progress)
    unlike = [
        (claim, evidence) for claim, evidence in figures if not _agrees(claim, evidence, _own(claim, evidence, runs))
    ]
    more: dict[str, list[int]] = defaultdict(list)
    for claim, evidence in unlike:
        if _value(claim, _own(claim, evidence, runs)) is None:
            continue  # it crashes, which is the answer
        seeds_of_experiment = more[claim.experiment]
        seeds_of_experiment += [
            seed
            for seed in _more_seeds(claim)
            if seed not in seeds_of_experiment and (claim.experiment, seed) not in runs
        ]
    before = len(runs)
    runs |= repeat_runs(
        project,
        root,
        more,
        code,
        processes=processes,
        on_progress=lambda done, total: on_progress(before + done, before + total),
    )
    code.check_unchanged()
    problems = [problem for pair in unlike for problem in _problems(*pair, runs)]
    return Replayed(seconds_of_claims([claim for claim, _ in figures], runs.values()), tuple(problems))


def problems_of_run(claim: Claim, evidence: Evidence, run: PairedRun) -> list[Problem]:
    """What is wrong with one repeated run of a figure, compared with the committed value of its seed.

    If the runs of this figure differ between machines, the value of one run is not compared.

    :param evidence: has a value for this seed
    """
    assert claim.figure is not None
    assert evidence.figure is not None
    value = _value(claim, run)
    if value is None:
        return [_crash(claim, run)]
    if not claim.figure.repeats or _agrees(claim, evidence, run):
        return []
    unit, committed = claim.figure.unit, evidence.figure.values[run.seed]
    return [_difference(claim, f"seed {run.seed} gives {value:.5g} {unit}, committed {committed:.5g}")]


def repeated_seed(evidence: Evidence) -> int:
    """Which run is repeated first follows from the evidence, so that a forger cannot choose it."""
    return int(digest([to_json(evidence)]), 16) % len(evidence.seeds)


def _own(claim: Claim, evidence: Evidence, runs: Runs) -> PairedRun:
    """The run that is repeated first."""
    return runs[claim.experiment, repeated_seed(evidence)]


def _more_seeds(claim: Claim) -> Sequence[int]:
    """The runs whose mean is compared where single runs differ between machines."""
    assert claim.figure is not None
    return () if claim.figure.repeats else range(min(RUNS_IF_NOT, len(claim.seeds)))


def _value(claim: Claim, run: PairedRun) -> float | None:
    assert claim.figure is not None
    return run.value_of(claim.figure.quantity)


def _agrees(claim: Claim, evidence: Evidence, run: PairedRun) -> bool:
    assert claim.figure is not None
    assert evidence.figure is not None
    value = _value(claim, run)
    margin = max(claim.figure.tolerance, 10.0**-DECIMALS, AGREEMENT * max(map(abs, evidence.figure.values)))
    return value is not None and abs(value - evidence.figure.values[run.seed]) <= margin


def _problems(claim: Claim, evidence: Evidence, runs: Runs) -> list[Problem]:
    """Of a figure whose first repeated run is not as it is committed."""
    assert claim.figure is not None
    assert evidence.figure is not None
    own = _own(claim, evidence, runs)
    if claim.figure.repeats or _value(claim, own) is None:
        return problems_of_run(claim, evidence, own)
    values = []
    for run in (runs[claim.experiment, seed] for seed in _more_seeds(claim)):
        value = _value(claim, run)
        if value is None:
            return [_crash(claim, run)]
        values.append(value)
    found = compare_figures(evidence.figure, measured_figure(values, evidence.figure.claimed), claim.figure.tolerance)
    return [_difference(claim, each) for each in found if "runs instead of" not in each]


def _crash(claim: Claim, run: PairedRun) -> Problem:
    assert claim.figure is not None
    sentence = f"{CRASHES}: seed {run.seed}: {run.why_without(claim.figure.quantity)}"
    return Problem(claim.id, CLAIM_FELL, sentence, "verdict")


def _difference(claim: Claim, sentence: str) -> Problem:
    remedy = f"if that is right, {REMEDY_OF_FIGURES}"
    return Problem(claim.id, CLAIM_FELL, f"{DIFFERS}: {sentence}", "values", remedy)
