"""How a record counts for a program: passed, failed, error, or set aside."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from rlverify.records.claims import Verdict
from rlverify.reporting.phrasing import grade, outcome
from rlverify.reporting.record import Record
from rlverify.verdicts.verdict import NOT_MEASURED


class ClaimStatus(StrEnum):
    """The worse, the earlier in a list."""

    ERROR = "error"
    FAILED = "failed"
    SET_ASIDE = "set aside"
    PASSED = "passed"


def status_of(record: Record) -> ClaimStatus:
    """The status of a record; each of its conditions has its own.

    A figure with stale or undecided evidence is set aside, as in an audit.
    """
    verdict = record.measured_verdict
    if record.own_as_expected:
        return ClaimStatus.PASSED
    if record.claim.figure is not None and verdict in (Verdict.STALE, Verdict.UNDECIDED):
        return ClaimStatus.SET_ASIDE
    return ClaimStatus.ERROR if verdict is None or verdict in NOT_MEASURED else ClaimStatus.FAILED


def told(record: Record) -> str:
    """What was measured under the claim's own condition and what was expected, in one line."""
    record = replace(record, conditions=())
    line = f"{outcome(record)}, expected {record.claim.expected_verdict.value}"
    if record.claim.expected_fix_grade is not None:
        line += f"; fix {grade(record)}, expected {record.claim.expected_fix_grade.value}"
    return "; ".join([line, *record.misfits])
