"""The whole picture at a glance: what was said, what was measured, and where the proof of each stands."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from verification.report.book import FINDINGS, HOMES, Book, home
from verification.report.findings import false_alarms
from verification.report.interface import Record
from verification.report.markdown import render as render_template
from verification.report.readiness import results


@dataclass(frozen=True)
class Page:
    """A page that the index leads to.

    :param about: what stands on it, as the end of a line
    """

    name: str
    title: str
    about: str
    render: Callable[[Book], str]


@dataclass(frozen=True)
class Row:
    """Some claims in numbers: a finding falls where it speaks against a document."""

    title: str
    page: str
    claims: int
    stood: int
    fell: int
    holes: int


def render(book: Book, pages: Sequence[Page], texts: Mapping[str, str]) -> str:
    """The index as GitHub-flavoured Markdown.

    :param texts: the other pages as they were rendered, by name
    """
    wrong = [record for record in book.claims if record.contradicts_document]
    return render_template(
        "index.md.j2",
        book,
        rows=[_row(page.title, page.name, _at(book.statements, page)) for page in pages if page.name != FINDINGS],
        statements=_row("All documents", "", book.statements),
        findings=_row("Findings", FINDINGS, book.findings),
        homes=HOMES,
        wrong_records=wrong,
        experiments=len({record.claim.probe or record.claim.experiment for record in wrong}),
        results=results(book),
        false_alarms=false_alarms(book),
        pages=[(page, _sections(texts[page.name])) for page in pages],
    )


def _at(records: Sequence[Record], page: Page) -> list[Record]:
    return [record for record in records if home(record.claim) == page.name]


def _row(title: str, page: str, records: Sequence[Record]) -> Row:
    holes = sum(not record.has_verdict for record in records)
    fell = sum(record.contradicts_document for record in records)
    return Row(title, page, len(records), len(records) - fell - holes, fell, holes)


def _sections(text: str) -> list[tuple[str, str]]:
    """(title, anchor) of the sections of a page, without those of single claims, which the tables lead to."""
    titles = re.findall(r"(?<!</a>\n)^## (.+)$", text, re.MULTILINE)
    return [(title, heading_anchor(title)) for title in titles]


def heading_anchor(title: str) -> str:
    """The anchor that GitHub gives a heading of plain words."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
