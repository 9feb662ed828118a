"""Repeats runs of figures, so that evidence which no run gives is detected without measuring for an hour.

Runs are repeated where a change asks for it, and of a sample that moves on with the number of commits. Learning
amplifies the last bit of every sum: a change that reaches a figure shows in nearly any run of its experiment, and one
run checks all figures of the experiment.
"""

from __future__ import annotations

import json
import subprocess
import tomllib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rlverify.evidence.evidence_files import to_json
from rlverify.evidence.summarising import (
    compare_figures,
    is_committed_value,
    measured_figure,
    run_agrees,
    run_difference,
)
from rlverify.gating.git_base import Base, git
from rlverify.gating.problem_rules import REMEDY_OF_FIGURES
from rlverify.project.code import CurrentCode
from rlverify.project.content import Project
from rlverify.project.fingerprint import digest, module_path
from rlverify.project.settings import ReportPaths
from rlverify.records.claims import Claim
from rlverify.records.measured import Evidence, PairedRun
from rlverify.records.problems import CLAIM_FELL, Problem
from rlverify.running.executors import Executor
from rlverify.running.paired_runs import repeat_runs, seconds_of_claims
from rlverify.running.runner import Progress, no_progress

Figures = Sequence[tuple[Claim, Evidence]]

RUNS: Final = 10
"""Of how many experiments a run is repeated at most, whatever has changed."""
SECONDS: Final = 30.0
"""How long all these runs may take together, one after the other; two processes take half as long."""
UNKNOWN: Final = 3.0
"""Seconds of a run of which nothing is known."""


@dataclass(frozen=True)
class Revision:
    """Where a repository is.

    :param commit: HEAD; another text without Git
    :param number: how many commits lead to it; 0 without Git
    """

    commit: str
    number: int


def revision_of(project: Project, figures: Figures) -> Revision:
    """The revision that chooses the sample; without Git, the evidence does."""
    try:
        head = git(project.root, "rev-parse", "--verify", "HEAD")[0].strip()
        return Revision(head, int(git(project.root, "rev-list", "--count", "HEAD")[0]))
    except (OSError, subprocess.CalledProcessError):
        return Revision(digest(to_json(evidence) for _, evidence in figures), 0)


def seeds_to_repeat(
    figures: Figures, revision: Revision, forced: Mapping[str, int | None], seconds: Mapping[str, float]
) -> dict[str, list[int]]:
    """The seeds to repeat, by experiment.

    :param figures: those that may be repeated, with their committed evidence
    :param forced: ids of the figures of which a run must be repeated, with its seed; None where any seed will do
    :param seconds: that a run of each experiment takes, by its name, where that is known
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
    tables = {path: _tables(base, path) for path in {project.catalogue_file(claim) for claim, _ in figures}}
    found: dict[str, int | None] = {}
    for claim, evidence in figures:
        path = paths.evidence / f"{claim.id}.json"
        module = module_path(project.experiment(claim.experiment).__module__)
        was, now = (_table(each, claim) for each in tables[project.catalogue_file(claim)])
        moved = _moved_seed(evidence, base.text(path)) if path.resolve() in base.changed else None
        if moved is not None:
            found[claim.id] = moved
        elif was != now or module.resolve() in base.changed:
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


def _tables(base: Base, path: Path) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """What a catalogue file was at the base, and what it is now."""
    if path.resolve() not in base.changed:
        return {}, {}
    texts = base.text(path) or "", path.read_text(encoding="utf-8")
    try:
        return tomllib.loads(texts[0]), tomllib.loads(texts[1])
    except tomllib.TOMLDecodeError:
        return {}, tomllib.loads(texts[1])


def _table(content: Mapping[str, Any], claim: Claim) -> Mapping[str, Any]:
    """What a catalogue file says of a figure; of a condition also the figure of its claim, which it completes."""
    claim_id, _, condition = claim.id.partition("@")
    table: Mapping[str, Any] = next((each for each in content.get("claim", ()) if each.get("id") == claim_id), {})
    conditions = table.get("condition", ())
    if condition:
        own = [each for each in conditions if each.get("name") == condition]
        return {"figure": table.get("figure"), "condition": own}
    return {name: value for name, value in table.items() if name != "condition"}


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
