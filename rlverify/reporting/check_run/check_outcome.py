"""A run of the checks on some subjects, what follows from its records, and its records in words."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from rlverify.checks.check_records import CheckRecord, Status
from rlverify.checks.targets import Target
from rlverify.records.exit_codes import AS_EXPECTED, CLAIM_FELL, HARNESS_FAILED


@dataclass(frozen=True)
class CheckedSubject:
    """A subject and its records, in the order in which they were made."""

    target: Target
    records: tuple[CheckRecord, ...]


@dataclass(frozen=True)
class CheckRun:
    """All subjects of one run."""

    subjects: tuple[CheckedSubject, ...]

    @property
    def records(self) -> list[CheckRecord]:
        """The records of all subjects."""
        return [record for each in self.subjects for record in each.records]

    @property
    def exit_code(self) -> int:
        """1 if a check failed or an expected failure passed, whatever else went wrong; 2 if one could not be run."""
        unexpected = {each.status for each in self.records if each.is_unexpected}
        if unexpected - {Status.ERROR}:
            return CLAIM_FELL
        return HARNESS_FAILED if unexpected else AS_EXPECTED


def summary(run: CheckRun) -> str:
    """All records in one line: how many passed, were proven, failed, and so on."""
    found = Counter(each.status for each in run.records)
    proven = sum(any(proof.detected for proof in each.proofs) for each in run.records if each.status is Status.PASS)
    expected = sum(each.status is Status.FAIL and not each.is_unexpected for each in run.records)
    words = {
        Status.PASS: f"passed ({proven} proven)",
        Status.FAIL: f"failed ({expected} as expected)" if expected else "failed",
        Status.ERROR: "could not be run",
    }
    parts = [f"{found[status]} {words.get(status, status.value)}" for status in Status if found[status]]
    number = len(run.records)
    return f"{number} check{'s' * (number != 1)}: {', '.join(parts) or 'none'}"


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
