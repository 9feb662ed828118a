"""How a record counts where a program has to decide: passed, failed, not told, or set aside."""

from __future__ import annotations

from enum import StrEnum

from verification.model import Verdict
from verification.report.interface import Record
from verification.report.words import grade, outcome
from verification.verdict import NOT_MEASURED


class Standing(StrEnum):
    """The worse, the earlier in a list."""

    ERROR = "error"
    FAILED = "failed"
    SET_ASIDE = "set aside"
    PASSED = "passed"


def standing(record: Record) -> Standing:
    """What a record counts as; a figure whose evidence is stale or decides nothing is set aside, as an audit does."""
    if record.as_expected:
        return Standing.PASSED
    if record.claim.figure is not None and record.verdict in (Verdict.STALE, Verdict.UNDECIDED):
        return Standing.SET_ASIDE
    return Standing.ERROR if record.verdict is None or record.verdict in NOT_MEASURED else Standing.FAILED


def told(record: Record) -> str:
    """What was measured beside what is expected, in one line."""
    line = f"{outcome(record)}, expected {record.claim.expected_verdict.value}"
    if record.claim.expected_fix_grade is not None:
        line += f"; fix {grade(record)}, expected {record.claim.expected_fix_grade.value}"
    return "; ".join([line, *record.misfits])
