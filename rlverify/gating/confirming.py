"""Confirms figures of changed code by one repeated run each, so that a change which moves no value needs no full audit.

Learning amplifies the last bit of every sum. So a run of changed code that gives the committed value to all of its
digits has very likely computed the same all the way, and so have the others if they executed nothing else. They may do
so now: what a change does to other seeds alone is not seen. Therefore the lock file says which figures were confirmed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from rlverify.evidence.figure_evidence import distinguishable_values, is_committed_value
from rlverify.evidence.staleness import SETTINGS
from rlverify.gating.committed_evidence import Committed
from rlverify.gating.replay import problems_of_run, repeated_seed
from rlverify.project.current_code import GONE
from rlverify.records.claims import Claim
from rlverify.records.code_records import CodeRecord, Executed
from rlverify.records.errors import EvidenceError
from rlverify.records.measured import Evidence, FigureEvidence
from rlverify.records.problems import Problem
from rlverify.records.runs import PairedRun
from rlverify.reporting.record import Record
from rlverify.running.executor import Executor
from rlverify.running.paired_runs import FigureProgress, run_figures

FEWEST_VALUES: Final = 100
"""Of that many values, to the digits that are kept, a run of other code may give any: fewer show too little."""


@dataclass(frozen=True)
class Confirmed:
    """What repeated runs of figures gave.

    :param code: what those follow from now that are confirmed, by claim id
    :param problems: runs that crash or give another value than another machine explains
    """

    code: dict[str, CodeRecord]
    problems: tuple[Problem, ...] = ()


def confirm(
    committed: Committed,
    records: Sequence[Record],
    *,
    executor: Executor,
    on_figures: FigureProgress,
    ignore_cache: bool = False,
) -> Confirmed:
    """Repeat one run of each figure that can be confirmed by it.

    :param records: with committed evidence
    :param on_figures: called before the first run, and after each
    :param ignore_cache: make the runs again that are kept
    """
    asked = {
        each.claim.id: (each.claim, each.evidence, told_by(each.evidence.figure, repeated_seed(each.evidence)))
        for each in records
        if each.evidence is not None and each.evidence.figure is not None and can_be_confirmed(committed, each)
    }
    if not asked:
        return Confirmed({})
    seeds: dict[str, list[int]] = defaultdict(list)
    for claim, _, seed in asked.values():
        if seed not in seeds[claim.experiment]:
            seeds[claim.experiment].append(seed)
    paired = run_figures(
        committed.project,
        committed.paths.runs,
        seeds,
        executor=executor,
        on_progress=on_figures,
        code=committed.code,
        ignore_cache=ignore_cache,
    )
    runs = {(run.experiment, run.seed): run for found in paired.values() for run in found}
    code, problems = {}, []
    for name, (claim, evidence, seed) in asked.items():
        run = runs[claim.experiment, seed]
        problems += problems_of_run(claim, evidence, run)
        if (record := _record(committed, claim, evidence, run)) is not None:
            code[name] = record
    return Confirmed(code, tuple(problems))


def can_be_confirmed(committed: Committed, record: Record) -> bool:
    """Whether it is of a figure of changed code, whose values differ enough for one run to tell something."""
    claim, evidence = record.claim, record.evidence
    if claim.figure is None or evidence is None or evidence.figure is None or record.misfits:
        return False
    with suppress(EvidenceError):  # of a broken lock file, which an update replaces
        changed = committed.changed(claim)
        is_known = claim.id in committed.lock.claims and SETTINGS not in changed
        figure = evidence.figure
        return bool(changed) and is_known and bool(_unique(figure)) and distinguishable_values(figure) >= FEWEST_VALUES
    return False


def told_by(figure: FigureEvidence, seed: int) -> int:
    """A seed whose value no other run has: this one if it has, so that the gate repeats the same run."""
    unique = _unique(figure)
    return seed if seed in unique else unique[seed % len(unique)]


def _unique(figure: FigureEvidence) -> list[int]:
    return [seed for seed, value in enumerate(figure.values) if figure.values.count(value) == 1]


def _record(committed: Committed, claim: Claim, evidence: Evidence, run: PairedRun) -> CodeRecord | None:
    """What the figure follows from now: what this run executed, and what the others executed or may execute now.

    :param run: the repeated one
    :returns: None if it gives another value, or did not execute and read all that is left of what the runs did before,
        and what they may have executed since and has changed
    """
    assert claim.figure is not None
    assert evidence.figure is not None
    value, executed, code = run.value_of(claim.figure.quantity), run.executed, committed.code
    if value is None or executed is None or executed.unseen or not is_committed_value(evidence.figure, run.seed, value):
        return None
    before = committed.lock.claims[claim.id]
    changed = code.changed(before)
    tested = {*before.executed.functions, *({*before.mentioned} & {*changed})}
    if not {name for name in tested if code.digest(name) != GONE} <= {*executed.functions}:
        return None
    if not {*before.executed.files} <= {*executed.files}:
        return None
    settings, sources = committed.project.settings_digest(claim), committed.project.sources(claim)
    new = {*executed.functions} - {*before.executed.functions}
    mentioned = {*code.mentioned({*changed, *new}, executed.functions), *before.mentioned}
    left = {name for name in mentioned if code.digest(name) != GONE}
    return replace(code.record(settings, sources, executed, Executed(), left), repeated=run.seed)
