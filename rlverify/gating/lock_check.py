"""Whether the lock file lists what runs executed; where it does not, a change could select too little."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rlverify.evidence.lock_file import NAME as LOCK_FILE
from rlverify.evidence.staleness import shortened
from rlverify.gating.committed_evidence import Committed
from rlverify.gating.problem_rules import REMEDY_OF_FIGURES
from rlverify.project.current_code import CurrentCode
from rlverify.records.code_records import CodeRecord
from rlverify.records.exit_codes import CLAIM_FELL
from rlverify.records.problems import Problem
from rlverify.reporting.record import Record


def lacking(code: CurrentCode, locked: Mapping[str, CodeRecord], found: Mapping[str, CodeRecord]) -> list[Problem]:
    """What runs of claims or plots executed or read, just now, and the lock file does not list.

    An entry that says of itself that code has changed since may lack something: until it is replaced, its claim is
    measured whatever the change.

    :param locked: the records of the lock file, by id or name
    :param found: the records of what was just measured; only those are compared
    """
    lacks: dict[str, list[str]] = {}
    for name, record in found.items():
        if name in locked and not code.changed(locked[name]):
            known = dict(locked[name].parts)
            lacks[name] = [part for part, _ in record.parts if part not in known]
    who = [name for name, parts in lacks.items() if parts]
    what = sorted({part for parts in lacks.values() for part in parts})
    sentence = f"does not list {shortened(what)}, which runs of {shortened(who)} executed or read"
    return [_problem(sentence)] * bool(who)


def without_entry(committed: Committed, records: Iterable[Record]) -> list[Problem]:
    """Claims with evidence of which the lock file does not say what they were measured of."""
    ids = [each.claim.id for each in records if each.evidence is not None and not each.misfits]
    missing = [each for each in ids if each in committed.evidence and each not in committed.lock.claims]
    return [_problem(f"does not say what {shortened(missing)} executed")] * bool(missing)


def _problem(sentence: str) -> Problem:
    return Problem(LOCK_FILE, CLAIM_FELL, sentence, remedy=REMEDY_OF_FIGURES)
