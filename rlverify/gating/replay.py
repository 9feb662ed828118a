"""Repeats runs of figures, so that evidence which no run gives is detected without measuring for an hour."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rlverify.evidence.figure_evidence import (
    compare_figures,
    is_committed_value,
    measured_figure,
    run_agrees,
    run_difference,
)
from rlverify.gating.problem_rules import REMEDY_OF_FIGURES
from rlverify.gating.sample import Figures
from rlverify.project.code import CurrentCode
from rlverify.project.content import Project
from rlverify.project.settings import ReportPaths
from rlverify.records.claims import Claim
from rlverify.records.exit_codes import CLAIM_FELL
from rlverify.records.measured import Evidence
from rlverify.records.problems import Problem
from rlverify.records.runs import PairedRun
from rlverify.running.executors import Executor
from rlverify.running.paired_runs import repeat_runs, seconds_of_claims
from rlverify.running.runner import Progress, no_progress

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
    :param exact: how many of them give the committed values to all digits that are kept
    """

    seconds: Mapping[str, float]
    exact: int
    problems: tuple[Problem, ...]


def replay(
    project: Project,
    paths: ReportPaths,
    code: CurrentCode,
    figures: Figures,
    seeds: Mapping[str, Sequence[int]],
    *,
    same_machine: bool,
    executor: Executor,
    on_progress: Progress = no_progress,
) -> Replayed:
    """Repeat runs of figures, and compare each with the committed values of its seed.

    On a machine like the one that measured them, every digit must agree. On another, values may differ by a tolerance;
    where a single run can differ by more, more runs are repeated and their mean is compared.

    :param figures: with committed evidence; those of which no run is repeated are left out
    :param seeds: which runs to repeat, by experiment
    :param same_machine: whether the committed values were measured on such a machine, with the same libraries
    :param on_progress: called with the number of runs done and of all
    """
    runs = repeat_runs(project, paths.runs, seeds, code, executor=executor, on_progress=on_progress)
    own = {
        claim.id: [runs[claim.experiment, seed] for seed in seeds.get(claim.experiment, ()) if seed in claim.seeds]
        for claim, _ in figures
    }
    repeated = [(claim, evidence) for claim, evidence in figures if own[claim.id]]
    agrees = _is_exact if same_machine else _agrees
    unlike = [
        (claim, evidence)
        for claim, evidence in repeated
        if not all(agrees(claim, evidence, run) for run in own[claim.id])
    ]
    more: dict[str, list[int]] = defaultdict(list)
    for claim, _ in [] if same_machine else unlike:
        if all(_value(claim, run) is not None for run in own[claim.id]):  # a crash is the answer
            known = (*seeds[claim.experiment], *more[claim.experiment])
            more[claim.experiment] += [seed for seed in _more_seeds(claim) if seed not in known]
    ended = len(runs)
    runs |= repeat_runs(
        project,
        paths.runs,
        more,
        code,
        executor=executor,
        on_progress=lambda done, total: on_progress(ended + done, ended + total),
    )
    if same_machine:
        problems = [each for claim, evidence in unlike for each in _inexact(claim, evidence, own[claim.id])]
    else:
        problems = [each for claim, evidence in unlike for each in _problems(claim, evidence, own[claim.id], runs)]
    exact = sum(all(_is_exact(claim, evidence, run) for run in own[claim.id]) for claim, evidence in repeated)
    return Replayed(seconds_of_claims([claim for claim, _ in repeated], runs.values()), exact, tuple(problems))


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
    return value is not None and run_agrees(evidence.figure, run.seed, value, claim.figure.tolerance)


def _is_exact(claim: Claim, evidence: Evidence, run: PairedRun) -> bool:
    assert evidence.figure is not None
    value = _value(claim, run)
    return value is not None and is_committed_value(evidence.figure, run.seed, value)


def _inexact(claim: Claim, evidence: Evidence, own: Sequence[PairedRun]) -> list[Problem]:
    """Of a figure of which a repeated run does not give the committed value to the last digit."""
    run = next(run for run in own if not _is_exact(claim, evidence, run))
    value = _value(claim, run)
    if value is None:
        return [_crash(claim, run)]
    assert claim.figure is not None
    assert evidence.figure is not None
    return [_difference(claim, run_difference(evidence.figure, run.seed, value, claim.figure.unit))]


def _problems(claim: Claim, evidence: Evidence, own: Sequence[PairedRun], runs: Runs) -> list[Problem]:
    """Of a figure of which a repeated run is not as it is committed: that run, or the mean of several."""
    assert claim.figure is not None
    assert evidence.figure is not None
    several = [run for seed in _more_seeds(claim) if (run := runs.get((claim.experiment, seed))) is not None]
    for run in (*own, *several):
        if found := problems_of_run(claim, evidence, run):
            return found
    values = [value for run in several if (value := _value(claim, run)) is not None]
    fresh = measured_figure(values, evidence.figure.claimed)
    differences = compare_figures(evidence.figure, fresh, claim.figure.tolerance)
    return [_difference(claim, each) for each in differences if "runs instead of" not in each]


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
    return [_difference(claim, run_difference(evidence.figure, run.seed, value, claim.figure.unit))]


def _crash(claim: Claim, run: PairedRun) -> Problem:
    assert claim.figure is not None
    sentence = f"{CRASHES}: seed {run.seed}: {run.why_without(claim.figure.quantity)}"
    return Problem(claim.id, CLAIM_FELL, sentence, "verdict")


def _difference(claim: Claim, sentence: str) -> Problem:
    remedy = f"if that is right, {REMEDY_OF_FIGURES}"
    return Problem(claim.id, CLAIM_FELL, f"{DIFFERS}: {sentence}", "values", remedy)
