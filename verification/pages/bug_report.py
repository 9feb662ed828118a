"""The bug report, as document 002: each symptom with and without the bug, and what notices it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from rlverify import page
from rlverify.records.claims import Verdict
from rlverify.reporting.markdown import render
from rlverify.reporting.phrasing import outcome
from rlverify.reporting.report_data import ReportData
from rlverify.verdicts.verdict import Record

NAME: Final = "bug-report.md"


@page(NAME, title="Bug report", about="the ten bugs of document 002", documents=["002"])
def bug_report(data: ReportData) -> str:
    """The page as GitHub-flavoured Markdown."""
    return render("bug-report.md.j2", data, statistics=_statistics(data.at_home(NAME)))


def _statistics(records: Sequence[Record]) -> list[tuple[str, int]]:
    """(what, how many) of what was measured for the claims of the page."""
    evidence = [record.evidence for record in records if record.evidence is not None]
    variants = [variant for each in evidence for variant in each.variants]
    verdicts = Counter(outcome(record) for record in records)
    order = [*(verdict.value for verdict in Verdict), "NO EVIDENCE"]
    return [
        ("claims", len(records)),
        *((f"of them {name}", verdicts[name]) for name in order if verdicts[name]),
        ("runs", sum(each.runs for each in variants)),
        ("symptoms looked at, over all variants", sum(len(each.symptoms) for each in variants)),
        ("tests that must detect a planted fault", len({test for each in records for test in each.claim.killed_by})),
    ]
