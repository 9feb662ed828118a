"""What the command line shows of rules and of a run of them; nothing here prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from rlverify.checks.check_records import CheckRecord, Status
from rlverify.checks.rule import RULES
from rlverify.checks.table import details
from rlverify.cli.tables import plain_table
from rlverify.reporting.check_run.check_outcome import CheckedSubject, CheckRun, outcome_words, summary

STYLES: Final = {Status.PASS: "green", Status.FAIL: "red", Status.ERROR: "red", Status.INCONCLUSIVE: "yellow"}


def rules_table(names: Sequence[str]) -> Table:
    """One line a rule."""
    table = plain_table("check", "family", "severity", "expected", wrapped=["expected"])
    for name in names:
        rule = RULES[name]
        table.add_row(name, rule.family, rule.severity, Text(rule.expected))
    return table


def parts(run: CheckRun) -> Iterator[Any]:
    """A table for each subject, what is wrong in detail, and all in one line."""
    for each in run.subjects:
        yield Text(f"{each.target.subject.name} ({each.target.text})\n")
        yield _table(each)
        yield Text("")
    for record in run.records:
        if record.is_unexpected:
            yield Text(f"{details(record)}\n")
    yield Text(summary(run))


def _table(checked: CheckedSubject) -> Table:
    table = plain_table("status", "check", "outcome", wrapped=["outcome"])
    for record in checked.records:
        table.add_row(_status(record), record.check, Text(_short(record)))
    return table


def _status(record: CheckRecord) -> Text:
    """The status; its colour says nothing that the words do not."""
    style = STYLES.get(record.status, "")
    if record.expected_failure and record.status in (Status.PASS, Status.FAIL):
        style = "red" if record.is_unexpected else "green"
    return Text(record.status.value, style=style)


def _short(record: CheckRecord) -> str:
    """The outcome; of what is shown in detail below the table, only where it was seen."""
    if record.status is Status.FAIL and record.is_unexpected and record.finding.where:
        return record.finding.where
    return outcome_words(record)
