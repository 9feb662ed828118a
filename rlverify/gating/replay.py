"""Repeats runs of figures, so that evidence which no run gives is detected without measuring for an hour.

Runs are repeated where a change asks for it, and of a sample that moves on with the number of commits. Learning
amplifies the last bit of every sum: a change that reaches a figure shows in nearly any run of its experiment, and one
run checks all figures of the experiment.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rlverify.evidence.evidence_files import to_json
from rlverify.evidence.summarising import (
    compare_figures,
    is_committed_value,
    measured_figure,
    run_agrees,
    run_difference,
)
from rlverify.gating.git_base import Base, answer, claims_at
from rlverify.gating.problem_rules import REMEDY_OF_FIGURES
from rlverify.project.content import Project
from rlverify.project.fingerprint import digest, module_path
from rlverify.project.settings import ReportPaths
from rlverify.records.claims import Claim, Figure
from rlverify.records.errors import CatalogueError
from rlverify.records.measured import Evidence, FigureEvidence, PairedRun
from rlverify.records.problems import CLAIM_FELL, Problem
from rlverify.running.executors import Executor, Progress
from rlverify.running.paired_runs import FigureRuns, seconds_of_claims

Figures = Sequence[tuple[Claim, Evidence]]

RUNS: Final = 10
"""Of how many experiments a run is repeated at most, whatever has changed."""
SECONDS: Final = 30.0
"""How long all these runs may take together, one after the other; two processes take half as long."""
UNKNOWN: Final = 3.0
"""Seconds of a run of which nothing is known."""


@dataclass(frozen=True)
class Revision:
    """Where a repository is."""

    commit: str
    number: int


def revision_of(project: Project, figures: Figures) -> Revision:
    """The revision that chooses the sample; without Git, the evidence does."""
    if head := answer(project.root, "rev-parse", "--verify", "HEAD"):
        return Revision(head, int(answer(project.root, "rev-list", "--count", "HEAD")))
    return Revision(digest(to_json(evidence) for _, evidence in figures), 0)


def seeds_to_repeat(
    figures: Figures, revision: Revision, forced: Mapping[str, int | None], seconds: Mapping[str, float]
) -> dict[str, list[int]]:
    """The seeds to repeat, by experiment.

    :param forced: ids of the figures of which a run must be repeated, with its seed; None where any seed will do
    """
    windows = _windows({claim.experiment: seconds.get(claim.experiment, UNKNOWN) for claim, _ in figures})
    sampled = windows[revision.number % len(windows)]
    seeds: dict[str, list[int]] = {}
    for claim, _ in figures:
        asked = forced.get(claim.id)
        if asked is None and (claim.experiment in sampled or claim.id in forced):
            asked = int(digest([revision.commit, claim.experiment]), 16) % len(claim.seeds)
        if asked is not None and asked not in seeds.setdefault(claim.experiment, []):
            seeds[claim.experiment].append(asked)
    return seeds


def _windows(seconds: Mapping[str, float]) -> list[list[str]]:
    """The experiments in a fixed order, cut into parts that are each repeated within the time; at least one part."""
    windows: list[list[str]] = [[]]
    for name in sorted(seconds, key=lambda name: digest([name])):
        spent = sum(seconds[each] for each in windows[-1])
        if windows[-1] and (len(windows[-1]) == RUNS or spent + seconds[name] > SECONDS):
            windows.append([])
        windows[-1].append(name)
    return windows


def forced_by(base: Base, project: Project, paths: ReportPaths, figures: Figures) -> dict[str, int | None]:
    """The figures of which the claim, the experiment's module or the evidence differs from the base.

    :returns: by id, the seed of the run whose value a change moves most; None where any seed will do
    """
    try:
        before = claims_at(project, base)
    except CatalogueError:  # of another version, so that any claim may differ
        before = {}
    found: dict[str, int | None] = {}
    for claim, evidence in figures:
        path = paths.evidence / f"{claim.id}.json"
        module = module_path(project.experiment(claim.experiment).__module__)
        moved = _moved_seed(evidence, base.text(path)) if path.resolve() in base.changed else None
        if moved is not None:
            found[claim.id] = moved
        elif _asked(before.get(claim.id)) != _asked(claim) or module.resolve() in base.changed:
            found[claim.id] = None
    return found


def _moved_seed(evidence: Evidence, before: str | None) -> int | None:
    """The seed of the value that differs most from an earlier file; 0 if that has none, None if none differs."""
    assert evidence.figure is not None
    try:
        old = [float(value) for value in json.loads(before or "")["figure"]["values"]]
    except (ValueError, TypeError, KeyError):
        return 0
    moved = [abs(now - was) for now, was in zip(evidence.figure.values, old, strict=False)]
    return moved.index(max(moved)) if any(moved) else None


def _asked(claim: Claim | None) -> object:
    """What the evidence of a figure has to answer; of a condition without the words of its claim."""
    if claim is None or not claim.condition_of:
        return claim
    return claim.experiment, claim.figure, claim.expected_verdict, claim.of_fix, claim.condition, claim.earlier


DIFFERS: Final = "repeated runs differ"
CRASHES: Final = "a repeated run crashes"
RUNS_IF_NOT: Final = 8
"""How many runs are repeated of a figure whose runs differ between machines; at most all."""


@dataclass(frozen=True)
class Replayed:
    """Figures of which runs were repeated.

    :param exact: how many of them give the committed values to all digits that are kept
    """

    seconds: Mapping[str, float]
    exact: int
    problems: tuple[Problem, ...]


@dataclass(frozen=True, eq=False)
class RepeatedFigure:
    """A figure with its committed values, which repeated runs are compared with."""

    claim: Claim
    evidence: Evidence

    @property
    def figure(self) -> Figure:
        """What is claimed."""
        assert self.claim.figure is not None
        return self.claim.figure

    @property
    def committed(self) -> FigureEvidence:
        """The committed values."""
        assert self.evidence.figure is not None
        return self.evidence.figure

    @property
    def more_seeds(self) -> Sequence[int]:
        """The runs whose mean is compared where single runs differ between machines."""
        return () if self.figure.repeats else range(min(RUNS_IF_NOT, len(self.claim.seeds)))

    def value_of(self, run: PairedRun) -> float | None:
        """The value of a run; None if it crashed or does not give it."""
        return run.value_of(self.figure.quantity)

    def agrees(self, run: PairedRun) -> bool:
        """Whether a run gives the committed value of its seed, up to what another machine explains."""
        value = self.value_of(run)
        return value is not None and run_agrees(self.committed, run.seed, value, self.figure.tolerance)

    def is_exact(self, run: PairedRun) -> bool:
        """Whether a run gives the committed value of its seed, to all digits that are kept."""
        value = self.value_of(run)
        return value is not None and is_committed_value(self.committed, run.seed, value)

    def first_problem(self, runs: Iterable[PairedRun], *, exactly: bool = False) -> list[Problem]:
        """Return what is wrong with the first run that is not as it is committed."""
        for run in runs:
            value = self.value_of(run)
            if value is None:
                sentence = f"{CRASHES}: seed {run.seed}: {run.why_without(self.figure.quantity)}"
                return [Problem(self.claim.id, CLAIM_FELL, sentence, "verdict")]
            if not (self.is_exact(run) if exactly else not self.figure.repeats or self.agrees(run)):
                return [self._difference(run_difference(self.committed, run.seed, value, self.figure.unit))]
        return []

    def problems_of_mean(self, runs: Sequence[PairedRun]) -> list[Problem]:
        """Return where the mean of several runs is not as it is committed."""
        values = [value for run in runs if (value := self.value_of(run)) is not None]
        fresh = measured_figure(values, self.committed.claimed)
        fresh = replace(fresh, values=self.committed.values)  # fewer runs are no difference
        return [self._difference(each) for each in compare_figures(self.committed, fresh, self.figure.tolerance)]

    def _difference(self, sentence: str) -> Problem:
        remedy = f"if that is right, {REMEDY_OF_FIGURES}"
        return Problem(self.claim.id, CLAIM_FELL, f"{DIFFERS}: {sentence}", "values", remedy)


@dataclass(frozen=True)
class Repeats:
    """Runs of figures that are made again, to be compared with the committed values of their seeds.

    On a machine like the one that measured them, every digit must agree. On another, values may differ by a tolerance;
    where a single run can differ by more, more runs are repeated and their mean is compared.

    :param figures: with committed evidence; those of which no run is repeated are left out
    :param runs: which have to end before they are compared
    :param runs_of: gives more runs, by experiment and seeds
    :param same_machine: whether the committed values were measured on such a machine, with the same libraries
    """

    figures: Figures
    runs: FigureRuns
    runs_of: Callable[[Mapping[str, Sequence[int]]], FigureRuns]
    same_machine: bool

    def compared(self, executor: Executor, on_progress: Progress) -> Replayed:
        """Compare the runs; make more of them where one differs in a way that another machine may explain."""
        own = {
            RepeatedFigure(claim, evidence): [
                run
                for (name, seed), run in sorted(self.runs.ended.items())
                if name == claim.experiment and seed in claim.seeds
            ]
            for claim, evidence in self.figures
        }
        own = {figure: repeated for figure, repeated in own.items() if repeated}
        more = dict[str, list[int]]()
        unlike = [figure for figure, repeated in own.items() if not all(map(figure.agrees, repeated))]
        for figure in [] if self.same_machine else unlike:
            if all(figure.value_of(run) is not None for run in own[figure]):  # a crash is the answer
                asked = more.setdefault(figure.claim.experiment, [])
                known = {*asked, *(seed for name, seed in self.runs.ended if name == figure.claim.experiment)}
                asked += [seed for seed in figure.more_seeds if seed not in known]
        others = self.runs_of(more)
        others.run(executor, on_progress)
        runs = self.runs.ended | others.ended
        problems: list[Problem] = []
        for figure, repeated in own.items():
            if self.same_machine:
                problems += figure.first_problem(repeated, exactly=True)
            elif figure in unlike:
                several = [run for seed in figure.more_seeds if (run := runs.get((figure.claim.experiment, seed)))]
                problems += figure.first_problem([*repeated, *several]) or figure.problems_of_mean(several)
        exact = sum(all(map(figure.is_exact, repeated)) for figure, repeated in own.items())
        return Replayed(seconds_of_claims([figure.claim for figure in own], runs.values()), exact, tuple(problems))
