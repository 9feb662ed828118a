"""The fix summary, as document 003, with a migration guide whose blocks a test runs."""

from __future__ import annotations

from verification.report.book import Book
from verification.report.markdown import render as render_template


def render(book: Book) -> str:
    """The page as GitHub-flavoured Markdown."""
    return render_template("fix-summary.md.j2", book)
