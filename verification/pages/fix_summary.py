"""The fix summary, as document 003, with a migration guide whose blocks a test runs."""

from __future__ import annotations

from rlverify import page
from rlverify.reporting.markdown import render
from rlverify.reporting.report_data import ReportData


@page("fix-summary.md", title="Fix summary", about="the fix of document 003, with a migration guide", documents=["003"])
def fix_summary(data: ReportData) -> str:
    """The page as GitHub-flavoured Markdown."""
    return render("fix-summary.md.j2", data)
