"""The findings of our own, and the null faults apart."""

from __future__ import annotations

from rlverify import page
from rlverify.reporting.markdown import render
from rlverify.reporting.report_data import ReportData


@page(
    "findings.md",
    title="Findings",
    about="what no document says",
    documents=["contradictions", "figures", "findings", "nulls"],
)
def findings(data: ReportData) -> str:
    """The page as GitHub-flavoured Markdown."""
    return render("findings.md.j2", data)
