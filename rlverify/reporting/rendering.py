"""All pages of the report: the index, those that list everything, and those that the project registers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rlverify.project.registry import Page
from rlverify.records.claims import NOT_STATED
from rlverify.reporting.markdown import render
from rlverify.reporting.phrasing import BASES
from rlverify.reporting.ranking import (
    PHASES,
    SEVERITIES,
    STATUSES,
    Finding,
    plan,
    real_bugs,
    status_of_statement,
    wrong_statements,
)
from rlverify.reporting.report_data import CLAIMS, ReportData
from rlverify.reporting.svg import draw
from rlverify.verdicts.verdict import Record

SHOWN_BUGS: Final = 6
SHOWN_STATEMENTS: Final = 4
SHOWN_ACTIONS: Final = 4
"""Of each phase, on the index."""

APPENDIX: Final = {
    "action-plan.md": ("Action plan", "all findings by the time to act"),
    "wrong-statements.md": (
        "Wrong statements",
        "what measurement contradicts, and what does not count against a document",
    ),
    "contradictions.md": ("Contradictions", "where the documents contradict each other, and their checklists"),
    "all-claims.md": ("All claims", "every claim with its verdict and its command"),
}


@dataclass(frozen=True)
class IndexRow:
    """Some claims in numbers.

    :param excused: what measurement does not support, and what does not count against a document
    :param depends: of which the verdict depends on the conditions
    """

    title: str
    page: str
    claims: int
    stood: int
    fell: int
    excused: int
    depends: int
    holes: int


def render_index(data: ReportData, pages: Sequence[Page]) -> str:
    """The index as GitHub-flavoured Markdown.

    :param pages: the pages that it leads to, in their order
    """
    by_basis = [
        (title, [each for each in data.statements if each.claim.basis == basis]) for basis, title in BASES.items()
    ]
    bugs = real_bugs(data.claims, data.causes)
    return render(
        "index.md.j2",
        data,
        bugs=bugs,
        wrong=wrong_statements(data.claims, data.causes),
        shown=(SHOWN_BUGS, SHOWN_STATEMENTS, SHOWN_ACTIONS),
        rows=[_row(title, "", records) for title, records in by_basis if records],
        statements=_row("All statements", "", data.statements),
        findings=_row("Findings of our own", "", data.findings),
        severities=_severities(bugs),
        stated_bugs=sum(any(each.claim.kind != "finding" for each in bug.records) for bug in bugs),
        depending=_depending(data),
        opposed=sum(record.is_opposed for record in _depending(data)),
        plan=plan(data.claims, data.causes),
        phases=PHASES,
        appendix=APPENDIX,
        pages=pages,
        components=sum(each.claim.scale == "tensor" for each in data.claims),
        one_seed=sum(each.claim.figure is None and len(each.claim.seeds) == 1 for each in data.claims),
    )


def render_appendix(data: ReportData, pages: Sequence[Page]) -> dict[str, str]:
    """The pages that list everything, by name.

    :param pages: the pages of the project
    """
    at = {page.name: [record for record in data.statements if data.home(record.claim) == page.name] for page in pages}
    texts = {
        "action-plan.md": render("action-plan.md.j2", data, plan=plan(data.claims, data.causes), phases=PHASES),
        "wrong-statements.md": render(
            "wrong-statements.md.j2",
            data,
            wrong=wrong_statements(data.claims, data.causes),
            excused=[record for record in data.claims if status_of_statement(record) == STATUSES[2]],
            depending=_depending(data),
            not_stated=NOT_STATED,
        ),
        "all-claims.md": render(
            "all-claims.md.j2",
            data,
            bugs=real_bugs(data.claims, data.causes),
            rows=[_row(page.title, page.name, at[page.name]) for page in pages if at[page.name]],
            statements=_row("All statements", "", data.statements),
            findings=_row("Findings of our own", "", data.findings),
        ),
        "contradictions.md": render("contradictions.md.j2", data),
    }
    return {name: texts[name] for name in APPENDIX}


def _severities(bugs: Sequence[Finding]) -> dict[str, int]:
    """How many bugs have which severity, the most severe first; without severities that no bug has."""
    found = [bug.first.claim.assessed for bug in bugs]
    return {severity: found.count(severity) for severity in SEVERITIES if severity in found}


def _depending(data: ReportData) -> list[Record]:
    """Claims of which the verdict, or the grade of the fix, depends on the conditions."""
    return [record for record in data.claims if status_of_statement(record) == STATUSES[3]]


def _row(title: str, page: str, records: Iterable[Record]) -> IndexRow:
    found = [status_of_statement(record) for record in records]
    return IndexRow(title, page, len(found), *(found.count(status) for status in STATUSES))


def render_claims(data: ReportData) -> str:
    """The page as GitHub-flavoured Markdown."""
    return render("claims.md.j2", data)


CLAIMS_PAGE = Page(CLAIMS, "Claims", "every claim that has no page of its own", (), render_claims)


def render_all(data: ReportData) -> Mapping[str, str]:
    """Every file of the report by its name within the folder of reports: pages and plots."""
    others = any(data.home(record.claim) == CLAIMS for record in data.records)
    pages = (*data.pages, CLAIMS_PAGE) if others else data.pages
    texts = {page.name: page.render(data) for page in pages}
    pictures = {f"plots/{name}.svg": draw(plot) for name, plot in data.plots.items()}
    return {"index.md": render_index(data, pages), **render_appendix(data, pages), **texts, **pictures}
