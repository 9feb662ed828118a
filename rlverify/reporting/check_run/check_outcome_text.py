"""One record in words, for tables and messages."""

from __future__ import annotations

from rlverify.checks.check_records import CheckRecord, Status


def outcome_words(record: CheckRecord) -> str:
    """What is to be said next to the status: the proof of a pass, what a failure saw, the reason of all others."""
    if record.status is Status.PASS:
        unexpected = f"though it was expected to fail: {record.expected_failure}; " if record.expected_failure else ""
        return unexpected + record.outcome.removeprefix("pass, ")
    if record.status is Status.FAIL and record.expected_failure:
        other, known = record.other_causes, record.expected_failure
        return f"{other} (known failure: {known})" if other else f"as expected: {known}"
    return record.finding.seen


def reason(record: CheckRecord) -> str:
    """Status and outcome in one line."""
    words = outcome_words(record)
    if record.status is Status.FAIL and record.expected_failure:
        return f"fail, {words}"
    return f"{record.status.value}: {words}" if words else record.status.value
