"""Measures every claim, and compares with what is expected and with what is committed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from rlverify.evidence.evidence_files import is_committable
from rlverify.evidence.files import check_writable, prepare_working_folder
from rlverify.evidence.staleness import shortened
from rlverify.gating.changes import NOTHING_SELECTED, Selection
from rlverify.gating.committed_evidence import (
    Committed,
    check_ours,
    check_report,
    committed_records,
    replace_committed,
    write_all,
)
from rlverify.gating.confirming import Confirmed, can_be_confirmed, confirm
from rlverify.gating.criteria_check import check_criteria
from rlverify.gating.lock_check import lacking, without_entry
from rlverify.gating.measuring import Measured, measure
from rlverify.gating.plot_audit import check_plots, replace_plots
from rlverify.gating.problem_rules import REMEDY, REMEDY_OF_FIGURES, compared, notes_of, problems_of, problems_of_all
from rlverify.gating.replay import replay
from rlverify.project.content import Project
from rlverify.project.current_code import CurrentCode
from rlverify.project.settings import ReportPaths
from rlverify.records.claims import Claim
from rlverify.records.measured import Evidence
from rlverify.records.problems import Problem, exit_code_of, is_regression
from rlverify.reporting.record import Record
from rlverify.running.executor import Executor
from rlverify.running.paired_runs import FigureProgress
from rlverify.running.runner import Progress, no_progress

Level: TypeAlias = Literal["quick", "full"]
"""How much is measured: everything but the figures, which take an hour, or these too."""
RAW: Final = "raw.jsonl"


@dataclass(frozen=True)
class Audit:
    """The records and all that is wrong with them.

    :param measured: how many claims were measured; the others keep their committed evidence
    :param notes: what is worth knowing and is no problem
    :param committed: the evidence that was compared with, by claim id
    :param seconds: what the paired runs of figures took, by claim id
    """

    records: tuple[Record, ...]
    problems: tuple[Problem, ...]
    measured: int
    notes: tuple[str, ...] = ()
    committed: Mapping[str, Evidence] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """As `rlverify.records.exit_codes` says."""
        return exit_code_of(self.problems)


def audit(
    project: Project,
    paths: ReportPaths,
    *,
    update: bool,
    executor: Executor,
    on_progress: Progress,
    selection: Selection = NOTHING_SELECTED,
    only_selected: bool = False,
    level: Level = "quick",
    on_figures: FigureProgress = lambda _done, _total, _left: None,
    on_repeats: Progress = no_progress,
    on_plots: Progress = no_progress,
    ignore_cache: bool = False,
    chosen: frozenset[str] | None = None,
    fail_fast: bool = False,
) -> Audit:
    """Measure claims; compare with the committed evidence and reports, or replace them.

    Fresh evidence, report and raw runs are left in the working folder in either case. Where a claim could not be
    measured, an update keeps its committed evidence. The quick level keeps the evidence of figures, and repeats one run
    of those that executed code which has changed: an update confirms them by it. Without an update, runs of those that
    are selected are repeated too.

    :param selection: the claims and plots to measure at least
    :param only_selected: take other claims as they are committed, if they have evidence for what the catalogue asks
    :param on_repeats: called with the number of repeated runs of figures that are done, and of all
    :param on_plots: called with the number of plots that are measured, and of all
    :param ignore_cache: make the paired runs again that are kept from an earlier audit
    :param chosen: ids of the claims that this is about, where not all: others are neither measured nor compared, an
        update keeps their evidence, and the report, which is about all claims, is not compared
    :param fail_fast: stop once a claim with a probe is not as expected; claims that were not measured are left out
    :raises HarnessError: if the catalogue is broken, a folder cannot be written or the code is changed meanwhile;
        nothing has been replaced then
    """
    warnings = project.check()
    prepare_working_folder(paths.working)
    if update:
        check_ours(project, paths)
        check_writable(paths.evidence)
    committed = Committed(project, paths, CurrentCode(project))
    claims = [claim for claim in project.claims if chosen is None or claim.id in chosen]
    ids = {claim.id for claim in claims}
    others = [committed.record(claim) for claim in project.claims if claim.id not in ids]
    kept = _kept(committed, claims, level, selection.claim_ids if only_selected else None)
    fresh = measure(
        project,
        [claim for claim in claims if claim.id not in kept],
        paths.runs,
        code=committed.code,
        recorded=frozenset(ids) if update else selection.relocked,
        executor=executor,
        on_progress=on_progress,
        on_figures=on_figures,
        ignore_cache=ignore_cache,
        enough=_is_wrong if fail_fast else None,
    )
    committed.code.check_unchanged()
    found = (kept.get(each.id) or fresh.record(each) for each in claims if each.id in kept or each.id in fresh.evidence)
    records, notes = tuple(found), [*warnings, *_left_out(len(claims), len(kept) + len(fresh.evidence))]
    if update:
        confirmed = confirm(
            committed,
            [each for each in records if each.claim.id in kept],
            executor=executor,
            on_figures=on_figures,
            ignore_cache=ignore_cache,
        )
        return _replaced(committed, records, others, fresh, confirmed, notes, executor, on_plots)
    write_all(committed, paths.working, records, others, {RAW: fresh.raw})
    again = replay(
        committed,
        _to_replay(committed, kept, selection.in_diff),
        before=selection.before,
        recorded=selection.relocked,
        executor=executor,
        on_progress=on_repeats,
    )
    records = _with_changes(committed, records, selection)
    problems = [*problems_of_all(records, committed.evidence), *again.problems]
    problems += lacking(committed.code, committed.lock.claims, {**fresh.code, **again.code})
    problems += without_entry(committed, records)
    of_criteria, unchecked = check_criteria(committed, chosen)
    problems += of_criteria
    problems += _compare_all(committed, records, selection, executor, on_plots, complete=not others)
    notes += [*unchecked, *notes_of(records, advise=not is_regression(problems))]
    notes += _digests_only(committed, records, problems)
    measured = len(fresh.evidence) + len(again.seconds)
    seconds = {**fresh.seconds, **again.seconds}
    return Audit(records, tuple(problems), measured, tuple(notes), committed.evidence, seconds)


def _replaced(
    committed: Committed,
    records: tuple[Record, ...],
    others: Sequence[Record],
    fresh: Measured,
    confirmed: Confirmed,
    notes: Sequence[str],
    executor: Executor,
    on_plots: Progress,
) -> Audit:
    """Replace what is committed by what was measured, once all of it is known."""
    plots = replace_plots(committed, executor=executor, all_claims=not others, on_progress=on_plots)
    write_all(committed, committed.paths.working, records, others, {RAW: fresh.raw})
    replace_committed(committed, records, others, fresh.code, plots, confirmed.code)
    kept = [each for each in records if each.evidence is not None and each.claim.id not in fresh.evidence]
    older = [each.claim.id for each in kept if each.claim.id not in confirmed.code and committed.changed(each.claim)]
    problems = (*problems_of_all(records), *confirmed.problems)
    notes = (*notes, *notes_of(records), *_of_other_code([*confirmed.code], older))
    return Audit(records, problems, len(fresh.evidence), notes, seconds=fresh.seconds)


def _of_other_code(confirmed: Sequence[str], older: Sequence[str]) -> Iterator[str]:
    """Says of which figures one run was repeated, and which are still of the code of before."""
    if confirmed:
        yield f"{shortened(confirmed)}: kept, as a repeated run of the code of today gives exactly the committed value"
    if older:
        reason = "code that they executed has changed, and no repeated run confirms them"
        yield f"{shortened(older)}: kept, though {reason}; {REMEDY_OF_FIGURES}"


def _with_changes(committed: Committed, records: Sequence[Record], selection: Selection) -> tuple[Record, ...]:
    """The records with what has changed since they were committed, or else since the base."""
    return tuple(
        replace(each, changed=committed.changed(each.claim) or selection.changed.get(each.claim.id, ()))
        for each in records
    )


def _kept(
    committed: Committed, claims: Sequence[Claim], level: Level, selected: frozenset[str] | None
) -> dict[str, Record]:
    """The records of those claims whose committed evidence is not measured again, by id."""
    kept = {}
    for claim in claims:
        figure = claim.figure is not None
        if (figure and level == "quick") or (selected is not None and claim.id not in selected):
            record = committed.record(claim)
            if (figure and level == "quick") or (record.evidence is not None and not record.misfits):
                kept[claim.id] = record
    return kept


def _to_replay(
    committed: Committed, kept: Mapping[str, Record], in_diff: frozenset[str]
) -> list[tuple[Claim, Evidence]]:
    """The figures, with their committed evidence, of which runs must be repeated."""
    return [
        (each.claim, each.evidence)
        for each in kept.values()
        if each.claim.figure is not None
        and each.evidence is not None
        and not each.misfits
        and (each.claim.id in in_diff or committed.changed(each.claim))
    ]


def _is_wrong(record: Record) -> bool:
    return bool(problems_of(record))


def _left_out(claims: int, records: int) -> list[str]:
    left = claims - records
    return [f"a claim is not as expected, so {left} of {claims} claims were not measured"] * bool(left)


def _compare_all(
    committed: Committed,
    records: Sequence[Record],
    selection: Selection,
    executor: Executor,
    on_plots: Progress,
    *,
    complete: bool,
) -> list[Problem]:
    """Where records differ from the committed evidence; plots and reports too if the records are complete."""
    problems: list[Problem] = []
    for record in records:
        if record.evidence is not None and is_committable(record.evidence):
            problems += compared(record, committed.evidence.get(record.claim.id))
    if not complete or len(records) < len(committed.project.claims):
        return problems
    problems += check_plots(
        committed, selection.plots, executor=executor, on_progress=on_plots, recorded=selection.relocked
    )
    if problems:
        return problems
    expected = committed_records(committed.project, committed.evidence)
    return check_report(committed.project, committed.paths, expected, committed.evidence)


def _digests_only(committed: Committed, records: Sequence[Record], problems: Sequence[Problem]) -> list[str]:
    """Says that code has changed and no value has; nothing where something is wrong."""
    fitting = [record.claim for record in records if not record.misfits]
    changed = {claim: found for claim in fitting if (found := committed.changed(claim))}
    if not changed or problems:
        return []
    names = sorted({name for found in changed.values() for name in found})
    since = f"changed since {_claims(len(changed))} measured"
    by_one_run = [each.claim for each in records if can_be_confirmed(committed, each)]
    remedy = REMEDY if any(claim.figure is None or claim in by_one_run for claim in changed) else REMEDY_OF_FIGURES
    return [f"digests only: {shortened(names)} {since}, and what was measured again agrees; {remedy}"]


def _claims(number: int) -> str:
    return f"{number} claim was" if number == 1 else f"{number} claims were"
