"""The integration analysis, as document 001: what became of each problem, and whether its criteria hold."""

from __future__ import annotations

from rlverify import page
from rlverify.reporting.markdown import render
from rlverify.reporting.report_data import ReportData


@page(
    "integration-analysis.md",
    title="Integration analysis",
    about="what document 001 says became of it",
    documents=["001"],
)
def integration_analysis(data: ReportData) -> str:
    """The page as GitHub-flavoured Markdown."""
    return render("integration-analysis.md.j2", data)
