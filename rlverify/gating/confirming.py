"""Confirms figures of changed code by one repeated run each, so that a change which moves no value needs no full audit.

Learning amplifies the last bit of every sum. So a run of changed code that gives the committed value to all of its
digits has computed the same all the way, unless its quantity has few values. A figure is confirmed only if no other of
its runs has the value of this one, and if this run executed all that has changed of what the runs executed before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from rlverify.evidence.figure_evidence import is_committed_value
from rlverify.evidence.staleness import SETTINGS
from rlverify.gating.committed_evidence import Committed
from rlverify.gating.replay import repeated_seed
from rlverify.project.current_code import GONE
from rlverify.records.claims import Claim
from rlverify.records.code_records import CodeRecord, Executed, together
from rlverify.records.measured import Evidence
from rlverify.records.runs import PairedRun
from rlverify.reporting.record import Record
from rlverify.running.executor import Executor
from rlverify.running.paired_runs import FigureProgress, run_figures


def confirm(
    committed: Committed,
    records: Sequence[Record],
    *,
    executor: Executor,
    on_figures: FigureProgress,
    ignore_cache: bool = False,
) -> dict[str, CodeRecord]:
    """What figures follow from now, by claim id, of those that one repeated run confirms.

    :param records: with committed evidence; those are confirmed that are of a figure and of code that has changed
    :param on_figures: called before the first run, and after each
    :param ignore_cache: make the runs again that are kept
    """
    asked = list(_to_confirm(committed, records))
    if not asked:
        return {}
    seeds: dict[str, list[int]] = defaultdict(list)
    for claim, evidence in asked:
        if (seed := repeated_seed(evidence)) not in seeds[claim.experiment]:
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
    found = {
        claim.id: _confirmed(committed, claim, evidence, runs[claim.experiment, repeated_seed(evidence)])
        for claim, evidence in asked
    }
    return {name: record for name, record in found.items() if record is not None}


def _to_confirm(committed: Committed, records: Sequence[Record]) -> Iterator[tuple[Claim, Evidence]]:
    """The figures of code that has changed, with their evidence, of which one run can tell something."""
    for record in records:
        claim, evidence = record.claim, record.evidence
        if claim.figure is None or evidence is None or evidence.figure is None or record.misfits:
            continue
        changed, values = committed.changed(claim), evidence.figure.values
        is_known = claim.id in committed.lock.claims and SETTINGS not in changed
        if changed and is_known and values.count(values[repeated_seed(evidence)]) == 1:
            yield claim, evidence


def _confirmed(committed: Committed, claim: Claim, evidence: Evidence, run: PairedRun) -> CodeRecord | None:
    """What the figure follows from now: what this run executed, and what is left of that which the others did.

    :param run: the repeated one
    :returns: None if it gives another value or tells nothing about a part that has changed
    """
    assert claim.figure is not None
    assert evidence.figure is not None
    value = run.value_of(claim.figure.quantity)
    if value is None or run.executed is None or not is_committed_value(evidence.figure, run.seed, value):
        return None
    code, before = committed.code, committed.lock.claims[claim.id]
    settings, sources = committed.project.settings_digest(claim), committed.project.sources(claim)
    seen = code.record(settings, sources, run.executed, Executed())
    unseen = set(code.changed(before)) - {name for name, _ in seen.parts}
    if any(code.digest(name) != GONE for name in unseen):
        return None
    return code.record(settings, sources, together([before.executed, run.executed]), Executed())
