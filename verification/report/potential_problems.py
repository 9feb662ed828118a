"""The potential problems, as document 000: each put into the core and measured."""

from __future__ import annotations

from verification.report.book import Book
from verification.report.markdown import render as render_template


def render(book: Book) -> str:
    """The page as GitHub-flavoured Markdown."""
    return render_template("potential-problems.md.j2", book)
