"""The bug report, as document 002: each symptom with and without the bug, and what notices it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from verification.model import Verdict
from verification.report.book import HOMES, Book
from verification.report.interface import Record
from verification.report.markdown import render as render_template
from verification.report.words import outcome


def render(book: Book) -> str:
    """The page as GitHub-flavoured Markdown."""
    return render_template("bug-report.md.j2", book, statistics=_statistics(book.at_home(HOMES["002"])))


def _statistics(records: Sequence[Record]) -> list[tuple[str, int]]:
    """(what, how many) of what was measured for the claims of the page."""
    evidence = [record.evidence for record in records if record.evidence is not None]
    variants = [variant for each in evidence for variant in each.variants]
    verdicts = Counter(outcome(record) for record in records)
    order = [*(verdict.value for verdict in Verdict), "NO EVIDENCE"]
    return [
        ("claims", len(records)),
        *((f"of them {name}", verdicts[name]) for name in order if verdicts[name]),
        ("runs", sum(each.runs for each in variants)),
        ("symptoms looked at, over all variants", sum(len(each.symptoms) for each in variants)),
        ("tests that must notice a planted fault", len({test for each in records for test in each.claim.killed_by})),
    ]
