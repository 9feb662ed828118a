"""All pages of the report: those that the project registers, those that list everything, and the index."""

from __future__ import annotations

from collections.abc import Mapping

from rlverify.reporting.claims_page import CLAIMS_PAGE
from rlverify.reporting.index import render_appendix, render_index
from rlverify.reporting.report_data import CLAIMS, ReportData
from rlverify.reporting.svg import draw


def render_all(data: ReportData) -> Mapping[str, str]:
    """Every file of the report by its name within the folder of reports: pages and plots."""
    others = any(data.home(record.claim) == CLAIMS for record in data.records)
    pages = (*data.pages, CLAIMS_PAGE) if others else data.pages
    texts = {page.name: page.render(data) for page in pages}
    pictures = {f"plots/{name}.svg": draw(plot) for name, plot in data.plots.items()}
    return {"index.md": render_index(data, pages), **render_appendix(data, pages), **texts, **pictures}
