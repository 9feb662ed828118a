"""The verification of the PPO findings, as document 004."""

from __future__ import annotations

from verification.report.book import Book
from verification.report.markdown import render as render_template


def render(book: Book) -> str:
    """The page as GitHub-flavoured Markdown."""
    return render_template("ppo-verification.md.j2", book)
