"""Repeats runs of figures, so that evidence which no run gives is detected without measuring for an hour."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rlverify.evidence.evidence_files import to_json
from rlverify.evidence.figure_evidence import compare_figures, measured_figure, run_agrees, run_difference
from rlverify.gating.committed_evidence import Committed
from rlverify.gating.problem_rules import REMEDY_OF_FIGURES
from rlverify.project.fingerprint import digest
from rlverify.records.claims import Claim
from rlverify.records.code_records import CodeRecord, Executed
from rlverify.records.exit_codes import CLAIM_FELL
from rlverify.records.measured import Evidence
from rlverify.records.problems import Problem
from rlverify.records.runs import PairedRun
from rlverify.running.executor import Executor
from rlverify.running.paired_runs import seconds_of_claims
from rlverify.running.repeated_runs import repeat_runs
from rlverify.running.runner import Progress, no_progress

DIFFERS: Final = "repeated runs differ"
CRASHES: Final = "a repeated run crashes"
RUNS_IF_NOT: Final = 8
"""How many runs are repeated of a figure whose runs differ between machines; at most all."""


NOTHING_BEFORE: Final[Mapping[str, Evidence]] = {}

Runs = Mapping[tuple[str, int], PairedRun]
"""By experiment and seed."""


@dataclass(frozen=True)
class Replayed:
    """Figures of which runs were repeated.

    :param seconds: as `seconds_of_claims` gives them, by claim id
    :param code: what those that were recorded executed, by claim id
    """

    seconds: Mapping[str, float]
    problems: tuple[Problem, ...]
    code: Mapping[str, CodeRecord]


def replay(
    committed: Committed,
    figures: Sequence[tuple[Claim, Evidence]],
    *,
    before: Mapping[str, Evidence] = NOTHING_BEFORE,
    recorded: frozenset[str] = frozenset(),
    executor: Executor,
    on_progress: Progress = no_progress,
) -> Replayed:
    """Repeat one run of each figure, and compare it with the committed value of its seed.

    Where runs do not repeat between machines and this one differs, more are repeated and their mean is compared.

    :param before: what was committed before the evidence that a change replaces, by claim id
    :param recorded: ids of the claims of which it is recorded what a run executes
    :param on_progress: called with the number of runs done and of all
    """
    seeds: dict[str, list[int]] = defaultdict(list)
    first = {claim.id: repeated_seed(evidence, before.get(claim.id)) for claim, evidence in figures}
    for claim, _ in figures:
        if first[claim.id] not in seeds[claim.experiment]:
            seeds[claim.experiment].append(first[claim.id])
    code, project, root = committed.code, committed.project, committed.paths.runs
    traced = frozenset(claim.experiment for claim, _ in figures if claim.id in recorded)
    runs = repeat_runs(project, root, seeds, code, executor=executor, on_progress=on_progress, recorded=traced)
    own = {claim.id: runs[claim.experiment, first[claim.id]] for claim, _ in figures}
    unlike = [(claim, evidence) for claim, evidence in figures if not _agrees(claim, evidence, own[claim.id])]
    more: dict[str, list[int]] = defaultdict(list)
    for claim, _ in unlike:
        if _value(claim, own[claim.id]) is None:
            continue  # it crashes, which is the answer
        seeds_of_experiment = more[claim.experiment]
        seeds_of_experiment += [
            seed
            for seed in _more_seeds(claim)
            if seed not in seeds_of_experiment and (claim.experiment, seed) not in runs
        ]
    ended = len(runs)
    runs |= repeat_runs(
        project,
        root,
        more,
        code,
        executor=executor,
        on_progress=lambda done, total: on_progress(ended + done, ended + total),
    )
    code.check_unchanged()
    problems = [each for claim, evidence in unlike for each in _problems(claim, evidence, own[claim.id], runs)]
    seconds = seconds_of_claims([claim for claim, _ in figures], runs.values())
    found = {claim.id: (claim, own[claim.id].executed) for claim, _ in figures if claim.id in recorded}
    return Replayed(seconds, tuple(problems), _records(committed, found))


def _records(committed: Committed, found: Mapping[str, tuple[Claim, Executed | None]]) -> dict[str, CodeRecord]:
    """What claims were measured of, where a run was recorded."""
    project = committed.project
    return {
        name: committed.code.record(project.settings_digest(claim), project.sources(claim), executed, Executed())
        for name, (claim, executed) in found.items()
        if executed is not None
    }


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


def repeated_seed(evidence: Evidence, before: Evidence | None = None) -> int:
    """Which run is repeated first: that whose value a change moves most, so that no part of the runs can be forged.

    Where it moves none, the seed follows from the evidence.
    """
    assert evidence.figure is not None
    old = before.figure.values if before is not None and before.figure is not None else ()
    moved = [abs(now - was) for now, was in zip(evidence.figure.values, old, strict=False)]
    if any(moved):
        return moved.index(max(moved))
    return int(digest([to_json(evidence)]), 16) % len(evidence.seeds)


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


def _problems(claim: Claim, evidence: Evidence, own: PairedRun, runs: Runs) -> list[Problem]:
    """Of a figure whose first repeated run is not as it is committed."""
    assert claim.figure is not None
    assert evidence.figure is not None
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
