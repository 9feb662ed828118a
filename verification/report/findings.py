"""Findings of our own, and the null faults apart."""

from __future__ import annotations

from typing import Final

from verification.model import Verdict
from verification.report.book import Book
from verification.report.interface import Record
from verification.report.markdown import render as render_template

NO_ALARM: Final = (None, Verdict.STALE, Verdict.NOT_REPRODUCED)


def render(book: Book) -> str:
    """The page as GitHub-flavoured Markdown."""
    return render_template("findings.md.j2", book, false_alarms=false_alarms(book))


def false_alarms(book: Book) -> list[Record]:
    """Null faults that something noticed."""
    return [record for record in book.nulls if record.verdict not in NO_ALARM]
