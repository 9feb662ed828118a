"""Check records as text."""

from __future__ import annotations

from collections.abc import Sequence

from rlverify.checks.check_records import CheckRecord, Status


def table(records: Sequence[CheckRecord]) -> str:
    """One line for each check, and below it what is wrong."""
    width = max((len(each.check) for each in records), default=0)
    return "\n".join(_entry(each, width) for each in records) + "\n"


def _entry(record: CheckRecord, width: int) -> str:
    line = f"{record.subject}  {record.check:<{width}}  {record.outcome}"
    if record.status is Status.PASS and not record.is_unexpected:
        return line
    return "\n    ".join([line, *details(record).splitlines()[1:]])


def details(record: CheckRecord) -> str:
    """Everything that a reader needs about a check, in some lines."""
    found = record.finding
    rows = {
        "expected": found.expected,
        "seen": found.seen,
        "where": found.where,
        "why": found.why,
        "reason": record.expected_failure,
        "not detected": ", ".join(each.fault for each in record.proofs if not each.detected),
    }
    lines = [f"{record.subject}: {record.check}: {record.outcome}"]
    lines += [f"{name}: {text}" for name, text in rows.items() if text]
    if record.reproduction and record.status in (Status.FAIL, Status.ERROR):
        lines += ["reproduce:", *(f"    {line}" for line in record.reproduction.splitlines())]
    return "\n".join(lines)
