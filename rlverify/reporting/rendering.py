"""All pages of the report: the index, every claim, and those that the project registers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from rlverify.project.registry import Page
from rlverify.reporting.markdown import render
from rlverify.reporting.report_data import CLAIMS, ReportData
from rlverify.reporting.svg import draw


def render_claims(data: ReportData) -> str:
    """Render the page of the claims that have no page of their own, each in full."""
    return render("claims.md.j2", replace(data, in_full=True))


CLAIMS_PAGE: Final = Page(CLAIMS, "Claims", "every claim that has no page of its own", (), render_claims)


def render_all(data: ReportData) -> Mapping[str, str]:
    """Every file of the report by its name within the folder of reports: pages and plots."""
    others = any(data.home(record.claim) == CLAIMS for record in data.records)
    pages = (*data.pages, CLAIMS_PAGE) if others else data.pages
    return {
        "index.md": render("index.md.j2", data, pages=pages),
        **{page.name: page.render(data) for page in pages},
        "all-claims.md": render("all-claims.md.j2", data),
        **{f"plots/{name}.svg": draw(plot) for name, plot in data.plots.items()},
    }
