"""All pages of the report; each is a function of the book, and the index is one of all the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from verification.report import (
    bug_report,
    findings,
    fix_summary,
    index,
    integration_analysis,
    potential_problems,
    ppo_verification,
)
from verification.report.book import FINDINGS, HOMES, Book
from verification.report.index import Page
from verification.report.plot import draw

PAGES: Final = (
    Page(HOMES["000"], "Potential problems", "what document 000 expects to go wrong", potential_problems.render),
    Page(HOMES["001"], "Integration analysis", "what document 001 says became of it", integration_analysis.render),
    Page(HOMES["002"], "Bug report", "the ten bugs of document 002", bug_report.render),
    Page(HOMES["003"], "Fix summary", "the fix of document 003, with a migration guide", fix_summary.render),
    Page(HOMES["004"], "PPO verification", "the findings of document 004", ppo_verification.render),
    Page(FINDINGS, "Findings", "what no document says", findings.render),
)


def render_all(book: Book) -> Mapping[str, str]:
    """Every file of the report by its name within the folder of reports: pages and plots."""
    texts = {page.name: page.render(book) for page in PAGES}
    pictures = {f"plots/{name}.svg": draw(plot) for name, plot in book.plots.items()}
    return {"index.md": index.render(book, PAGES, texts), **texts, **pictures}
