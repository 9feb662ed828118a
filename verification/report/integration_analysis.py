"""The integration analysis, as document 001: what became of each problem, and whether its criteria hold."""

from __future__ import annotations

from verification.report.book import Book
from verification.report.markdown import render as render_template
from verification.report.readiness import results


def render(book: Book) -> str:
    """The page as GitHub-flavoured Markdown."""
    return render_template("integration-analysis.md.j2", book, results=results(book))
