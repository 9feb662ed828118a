"""The pages that answer the documents, one a document, and that of the findings of our own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rlverify import page
from rlverify.reporting.markdown import render
from rlverify.reporting.report_data import ReportData
from verification.pages.outline import first_line, sections
from verification.pages.overview import row_of
from verification.pages.ranking import faults, findings, plan

DOCUMENTS: Final = (
    (
        "potential-problems.md",
        "Potential problems",
        "000",
        "what document 000 expects to go wrong",
        "Document 000 lists seven problems that may arise between UPGD, population-based training, twin critics and "
        "variance gradient scaling (VGS). Each is planted in `rlcore` and measured.",
    ),
    (
        "integration-analysis.md",
        "Integration analysis",
        "001",
        "what document 001 says became of it",
        "Document 001 says that the problems of [document 000](potential-problems.md) are fixed and that the four "
        "techniques work together.",
    ),
    (
        "bug-report.md",
        "Bug report",
        "002",
        "the ten bugs of document 002",
        "Document 002 describes one open bug, #10, and says that nine earlier ones are fixed. Each is planted in "
        "`rlcore` and measured: without it, with it, and with the document's fix.",
    ),
    (
        "fix-summary.md",
        "Fix summary",
        "003",
        "the fix of document 003, with a migration guide",
        "Document 003 describes one fix: a member that copies another member's policy also copies its statistics of "
        "variance gradient scaling (VGS).",
    ),
    (
        "ppo-verification.md",
        "PPO verification",
        "004",
        "the findings of document 004",
        "Document 004 confirms, partly confirms or rejects seven findings about the learning algorithm. Each is tested "
        "again here.",
    ),
)
"""Name, title, document, description and first sentences of each page that answers a document."""


def _of_document(name: str, title: str, document: str, intro: str) -> Callable[[ReportData], str]:
    def rendered(data: ReportData) -> str:
        facts = data.facts["documents"]
        records = sorted(data.at_home(name), key=lambda each: first_line(document, each.claim.cites))
        return render(
            "document.md.j2",
            data,
            title=title,
            document=document,
            intro=intro,
            records=records,
            counts=row_of(title, name, records),
            bugs=faults(records, facts.causes),
            wrong=findings((each for each in records if each.contradicts_document), facts.causes),
            due=[each for found in plan(records, facts.causes).values() for each in found],
            sections=sections(data, document, records),
            tests=[each for each in facts.tests or () if each.document == document],
        )

    return rendered


for _name, _title, _document, _about, _intro in DOCUMENTS:
    page(_name, title=_title, about=_about, documents=[_document])(_of_document(_name, _title, _document, _intro))


@page(
    "findings.md",
    title="Findings",
    about="what no document says",
    documents=["contradictions", "figures", "findings", "nulls"],
)
def of_findings(data: ReportData) -> str:
    """The page as GitHub-flavoured Markdown."""
    return render("findings.md.j2", data, records=data.at_home("findings.md"))
