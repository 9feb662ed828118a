"""The pages that answer the documents, one a document, and that of the findings of our own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from rlverify import page
from rlverify.records.claims import Verdict
from rlverify.reporting.markdown import render
from rlverify.reporting.phrasing import outcome
from rlverify.reporting.report_data import ReportData
from rlverify.verdicts.verdict import Record

BUG_REPORT: Final = "bug-report.md"
PLAIN: Final = (
    ("potential-problems.md", "Potential problems", "what document 000 expects to go wrong", ["000"]),
    ("integration-analysis.md", "Integration analysis", "what document 001 says became of it", ["001"]),
    ("fix-summary.md", "Fix summary", "the fix of document 003, with a migration guide", ["003"]),
    ("ppo-verification.md", "PPO verification", "the findings of document 004", ["004"]),
    ("findings.md", "Findings", "what no document says", ["contradictions", "figures", "findings", "nulls"]),
)
"""Name, title, description and documents of each page that its template makes alone."""


def _rendered(template: str) -> Callable[[ReportData], str]:
    return lambda data: render(template, data)


for _name, _title, _about, _documents in PLAIN:
    page(_name, title=_title, about=_about, documents=_documents)(_rendered(f"{_name}.j2"))


@page(BUG_REPORT, title="Bug report", about="the ten bugs of document 002", documents=["002"])
def bug_report(data: ReportData) -> str:
    """Render each symptom with and without the bug, and what notices it."""
    return render(f"{BUG_REPORT}.j2", data, statistics=_statistics(data.at_home(BUG_REPORT)))


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
