"""The index: what was stated, what was measured, and on which page the proof of each claim is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rlverify.project.pages import Page
from rlverify.reporting.checklist_results import results
from rlverify.reporting.markdown import render
from rlverify.reporting.record import Record
from rlverify.reporting.report_data import ReportData


@dataclass(frozen=True)
class IndexRow:
    """Some claims in numbers: a finding falls where it contradicts a document."""

    title: str
    page: str
    claims: int
    stood: int
    fell: int
    holes: int


def render_index(data: ReportData, pages: Sequence[Page]) -> str:
    """The index as GitHub-flavoured Markdown.

    :param data: with the texts of all other pages
    :param pages: the pages that it leads to, in their order
    """
    wrong = [record for record in data.claims if record.contradicts_document]
    at = {page.name: [record for record in data.statements if data.home(record.claim) == page.name] for page in pages}
    return render(
        "index.md.j2",
        data,
        rows=[_row(page.title, page.name, at[page.name]) for page in pages],
        statements=_row("All documents", "", data.statements),
        findings=_row("Findings", "", data.findings),
        wrong_records=wrong,
        experiments=len({record.claim.probe or record.claim.experiment for record in wrong}),
        results=results(data),
        pages=[(page, _sections(data.texts[page.name])) for page in pages],
    )


def _row(title: str, page: str, records: Sequence[Record]) -> IndexRow:
    holes = sum(not record.has_verdict for record in records)
    fell = sum(record.contradicts_document for record in records)
    return IndexRow(title, page, len(records), len(records) - fell - holes, fell, holes)


def _sections(text: str) -> list[tuple[str, str]]:
    """(title, anchor) of the sections of a page, without those of single claims, which the tables lead to."""
    titles = re.findall(r"(?<!</a>\n)^## (.+)$", text, re.MULTILINE)
    return [(title, heading_anchor(title)) for title in titles]


def heading_anchor(title: str) -> str:
    """The anchor that GitHub gives a heading of plain words."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
