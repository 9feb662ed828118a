"""What matters most, on the index and on pages of its own: bugs, wrong statements, contradictions, what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rlverify import facts, page
from rlverify.project.content import Project
from rlverify.records.claims import NOT_STATED, Basis
from rlverify.reporting.markdown import render
from rlverify.reporting.report_data import ReportData
from rlverify.verdicts.verdict import Record
from verification.pages.ranking import (
    PHASES,
    SEVERITIES,
    SEVERITY_RULE,
    STATUSES,
    Finding,
    Phase,
    faults,
    plan,
    status_of_statement,
    wrong_statements,
)

BASES: Final[dict[Basis | None, str]] = {
    "code": "code of the bug, the fix or the call",
    "formula": "formula or number",
    "behaviour": "behaviour in words",
    "reconstruction": "title only; our reconstruction",
    "implied": "not stated in this form, only implied",
    "reported": "nothing; the original project reported it",
    None: "no class in the catalogue",
}
"""What a document gives for a claim, in words."""


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


@dataclass(frozen=True)
class Overview:
    """What the templates are told of all claims.

    :param shown: how many bugs, wrong statements and actions of each phase the index shows
    :param severities: how many bugs have which severity, the most severe first
    :param origins: how many bugs a document states, how many were measured here, how many are only reported
    :param unchecked: critical bugs that are only reported
    :param in_training: bugs that changed the episodes of a training run by more than chance
    :param certain: how many statements are certain and what that rests on, and why the others are not
    :param own: findings about the code under test as it is
    :param depending: claims of which the verdict, or the grade of the fix, depends on the conditions
    :param opposed: of how many of these the opposite was measured
    :param components: how many claims were measured on one component
    """

    bugs: Sequence[Finding]
    wrong: Sequence[Finding]
    plan: Mapping[Phase, Sequence[Finding]]
    rows: Sequence[IndexRow]
    rows_by_page: Sequence[IndexRow]
    statements: IndexRow
    findings: IndexRow
    severities: Mapping[str, int]
    origins: Mapping[str, int]
    unchecked: Sequence[Record]
    in_training: Sequence[Finding]
    certain: Mapping[str, int]
    own: Sequence[Record]
    depending: Sequence[Record]
    opposed: int
    components: int
    one_seed: int
    phases: Mapping[Phase, str]
    shown: tuple[int, int, int] = (6, 4, 4)


@facts("overview")
def of_project(_project: Project, _reports: Path) -> Callable[[ReportData], Overview]:
    """Hand `overview` to the templates."""
    return overview


def overview(data: ReportData) -> Overview:
    """Rank and count all claims."""
    causes = data.facts["documents"].causes
    bugs = faults(data.claims, causes)
    found = [bug.first.claim.assessed for bug in bugs]
    depending = _depending(data)
    grave = {claim for claim, how in data.facts.get("remarks", {}).items() if how.endswith(", more than chance")}
    by_basis = [
        (title, [each for each in data.statements if each.claim.basis == basis]) for basis, title in BASES.items()
    ]
    at = {each: [record for record in data.statements if data.home(record.claim) == each.name] for each in data.pages}
    return Overview(
        bugs=bugs,
        wrong=wrong_statements(data.claims, causes),
        plan=plan(data.claims, causes),
        rows=[row_of(title, "", records) for title, records in by_basis if records],
        rows_by_page=[row_of(each.title, each.name, records) for each, records in at.items() if records],
        statements=row_of("All statements", "", data.statements),
        findings=row_of("Findings of our own", "", data.findings),
        severities={severity: found.count(severity) for severity in SEVERITIES if severity in found},
        origins={origin: [_origin(bug) for bug in bugs].count(origin) for origin in ("stated", "measured", "reported")},
        unchecked=[
            bug.first for bug in bugs if _origin(bug) == "reported" and bug.first.claim.assessed == SEVERITIES[0]
        ],
        in_training=[bug for bug in bugs if not grave.isdisjoint(each.claim.id for each in bug.records)],
        certain=_certain(data.statements),
        own=[each for each in data.findings if each.claim.fault is None and not each.contradicts_document],
        depending=depending,
        opposed=sum(is_opposed(record) for record in depending),
        components=sum(each.claim.scale == "tensor" for each in data.claims),
        phases=PHASES,
        one_seed=_of_one_seed(data.claims),
    )


def is_opposed(record: Record) -> bool:
    """Whether a claim or a fix depends on its conditions, and the opposite was measured under one of them."""
    of_claim = record.depends and record.has_opposite(of_fix=False)
    return of_claim or (record.fix_depends and record.has_opposite(of_fix=True))


def _origin(bug: Finding) -> str:
    if any(each.claim.kind != "finding" for each in bug.records):
        return "stated"
    return "reported" if bug.first.claim.basis == "reported" else "measured"


def _certain(statements: Sequence[Record]) -> Mapping[str, int]:
    """How many statements are certain; each other counts once, under the first reason that applies."""
    reasons = [
        "holes" if status_of_statement(each) == STATUSES[4]
        else "reconstructed" if each.claim.basis in NOT_STATED
        else "depends" if status_of_statement(each) == STATUSES[3]
        else "small" if each.confidence != "high"
        else "certain"
        for each in statements
    ]  # fmt: skip
    certain = [each for each, reason in zip(statements, reasons, strict=True) if reason == "certain"]
    return {
        **{reason: reasons.count(reason) for reason in ("certain", "holes", "reconstructed", "depends", "small")},
        "tried": sum(bool(each.conditions) for each in certain),
        "argued": sum(bool(each.claim.invariant) for each in certain if not each.conditions),
        "one_seed": _of_one_seed(certain),
    }


def _of_one_seed(records: Iterable[Record]) -> int:
    return sum(each.claim.figure is None and len(each.claim.seeds) == 1 for each in records)


def _depending(data: ReportData) -> list[Record]:
    return [record for record in data.claims if status_of_statement(record) == STATUSES[3]]


def row_of(title: str, page: str, records: Iterable[Record]) -> IndexRow:
    """Count the claims of a page, or of some other kind."""
    found = [status_of_statement(record) for record in records]
    return IndexRow(title, page, len(found), *(found.count(status) for status in STATUSES))


@page("action-plan.md", title="Action plan", about="all findings by the time to act")
def action_plan(data: ReportData) -> str:
    """The page as GitHub-flavoured Markdown."""
    found = plan(data.claims, data.facts["documents"].causes)
    return render("action-plan.md.j2", data, plan=found, phases=PHASES, severities=SEVERITY_RULE)


@page(
    "wrong-statements.md",
    title="Wrong statements",
    about="what measurement contradicts, and what does not count against a document",
)
def wrong(data: ReportData) -> str:
    """The page as GitHub-flavoured Markdown."""
    return render(
        "wrong-statements.md.j2",
        data,
        wrong=wrong_statements(data.claims, data.facts["documents"].causes),
        excused=[record for record in data.claims if status_of_statement(record) == STATUSES[2]],
        depending=_depending(data),
        not_stated=NOT_STATED,
    )


@page(
    "contradictions.md",
    title="Contradictions",
    about="where the documents contradict each other, and their checklists",
)
def contradictions(data: ReportData) -> str:
    """The page as GitHub-flavoured Markdown."""
    return render("contradictions.md.j2", data)
