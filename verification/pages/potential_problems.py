"""The potential problems, as document 000: each put into the core and measured."""

from __future__ import annotations

from rlverify import page
from rlverify.reporting.markdown import render
from rlverify.reporting.report_data import ReportData


@page(
    "potential-problems.md",
    title="Potential problems",
    about="what document 000 expects to go wrong",
    documents=["000"],
)
def potential_problems(data: ReportData) -> str:
    """The page as GitHub-flavoured Markdown."""
    return render("potential-problems.md.j2", data)
