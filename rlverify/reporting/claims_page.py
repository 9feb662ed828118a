"""The page of the claims for whose document the project registers no page of its own."""

from __future__ import annotations

from rlverify.project.pages import Page
from rlverify.reporting.markdown import render
from rlverify.reporting.report_data import CLAIMS, ReportData


def render_claims(data: ReportData) -> str:
    """The page as GitHub-flavoured Markdown."""
    return render("claims.md.j2", data)


CLAIMS_PAGE = Page(CLAIMS, "Claims", "every claim that has no page of its own", (), render_claims)
