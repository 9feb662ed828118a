"""The whole audit as one HTML page that needs no network: style, script and plots are in it."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from rlverify.project.coverage import Coverage
from rlverify.records.claims import Verdict
from rlverify.records.measured import Evidence, VariantEvidence
from rlverify.reporting import figure_phrasing, phrasing
from rlverify.reporting.checklist_results import results
from rlverify.reporting.code_blocks import code_of
from rlverify.reporting.html_filters import (
    NOT_CLASSIFIED,
    OURS,
    SCALES,
    facets,
    slug,
)
from rlverify.reporting.markdown import TEMPLATES, TITLES
from rlverify.reporting.ranking import (
    PHASES,
    STATUSES,
    confidence,
    findings,
    is_real_bug,
    phase,
    plan,
    real_bugs,
    status_of_statement,
    wrong_statements,
)
from rlverify.reporting.record import Record
from rlverify.reporting.report_data import ReportData, anchor, document_of, spans
from rlverify.reporting.svg import draw

MOST_IMPORTANT: Final = 10
FORBIDDEN: Final = re.compile("[^\t\n\r\u0020-\u007e\u00a0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What HTML has no way to write: control characters and halves of surrogate pairs."""

VERDICTS: Final = {
    Verdict.CONFIRMED: "The bug breaks what the claim says, the healthy code does not; a figure is in its interval.",
    Verdict.NOT_REPRODUCED: "The documented bug ran and had no observable effect.",
    Verdict.REFUTED: "The opposite of the statement was observed.",
    Verdict.UNDECIDED: "The evidence does not separate them.",
    Verdict.REGRESSED: "The healthy code violates what the claim says.",
    Verdict.UNREACHED: "Production code does not run the planted bug; it does not count as measured.",
    Verdict.STALE: "The evidence is of other settings of the claim; it does not count as measured.",
    Verdict.ERROR: "The probe crashed; it does not count as measured.",
}


@dataclass(frozen=True)
class Cell:
    """What became of a symptom in one variant.

    :param state: ``holds``, ``violated`` or ``not``, for its colour
    :param values: expected and observed, or None where values are not shown
    """

    outcome: str
    state: str
    values: tuple[str, str] | None


def render_html(data: ReportData) -> str:
    """The report as one page; the same data give the same bytes."""
    script = _file("report.js")
    claims = data.claims
    found = findings((each for each in claims if is_real_bug(each) or each.contradicts_document), data.causes)
    text = (
        html_environment()
        .get_template("report.html.j2")
        .render(
            data=data,
            style=Markup(_file("report.css")),
            script=Markup(script),
            script_digest=b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            claims=claims,
            facets=facets(data, claims),
            bugs=len(real_bugs(claims, data.causes)),
            wrong=len(wrong_statements(claims, data.causes)),
            findings=found,
            most_important=found[:MOST_IMPORTANT],
            plan=plan(claims, data.causes),
            classes=_classes(claims),
            documents=_documents(data),
            checklists=results(data),
        )
    )
    return FORBIDDEN.sub("\ufffd", text)


@cache
def _file(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


@cache
def html_environment() -> Environment:
    """What every HTML page is rendered with."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters: dict[str, Any] = {
        "anchor": anchor,
        "prose": prose,
        "slug": slug,
        "outcome": phrasing.outcome,
        "grade": phrasing.grade,
        "result": phrasing.result,
        "difference": phrasing.difference,
        "spread": phrasing.spread,
        "statement": phrasing.statement,
        "interval": phrasing.interval,
        "claimed": figure_phrasing.claimed_in_words,
        "origin": figure_phrasing.origin,
        "effect": figure_phrasing.effect_in_words,
        "confidence": confidence,
        "phase": phase,
        "real_bug": is_real_bug,
        "svg": lambda plot: Markup(draw(plot, styled=False)),
    }
    made.filters.update(filters)
    made.globals.update(
        titles=TITLES,
        code_of=code_of,
        limits=phrasing.limits,
        groups_of_conditions=phrasing.GROUPS_OF_CONDITIONS,
        phases=PHASES,
        verdicts=VERDICTS,
        bases=phrasing.BASES,
        statuses=STATUSES,
        scales=SCALES,
        quoted=quoted,
        symptom_rows=symptom_rows,
        source_title=source_title,
    )
    return made


def prose(text: str) -> Markup:
    """A text in which what stands between backticks is code."""
    parts = re.split(r"`([^`]+)`", text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part) for number, part in enumerate(parts)
    )


def quoted(data: ReportData, cite: str) -> list[tuple[int, str]]:
    """(number, text) of the lines of a citation; none where the report data do not have the document."""
    document, first, last = spans(cite)
    lines = data.lines.get(document, ())[first - 1 : last]
    return list(enumerate(lines, start=first))


def symptom_rows(evidence: Evidence) -> list[tuple[str, list[Cell]]]:
    """For each symptom its name and what became of it in each variant."""
    names = dict.fromkeys(each.symptom for variant in evidence.variants for each in variant.symptoms)
    return [(name, [_cell(name, variant) for variant in evidence.variants]) for name in names]


def _cell(name: str, variant: VariantEvidence) -> Cell:
    found = next((each for each in variant.symptoms if each.symptom == name), None)
    outcome = phrasing.symptom_outcome(name, variant)[1]
    values = None
    if found is not None and found.before is not None and found.after is not None:
        values = (found.before or phrasing.EMPTY, found.after or phrasing.EMPTY)
    return Cell(outcome, outcome.partition(" ")[0], values)


def source_title(data: ReportData, key: str) -> str:
    """What a key of `ReportData.source` stands for."""
    if key == OURS:
        return "our own findings"
    return f"{'document' if key in data.files else 'catalogue file'} {key}"


def _classes(claims: Sequence[Record]) -> list[tuple[str, str, dict[str, int]]]:
    """(evidence class, what it is, how many of its claims have each status), the classes alone that have claims."""
    rows: list[tuple[str, str, dict[str, int]]] = []
    for basis, meaning in phrasing.BASES.items():
        of_class = [status_of_statement(each) for each in claims if each.claim.basis == basis]
        if of_class:
            rows.append((basis or NOT_CLASSIFIED, meaning, {status: of_class.count(status) for status in STATUSES}))
    return rows


@dataclass(frozen=True)
class AuditedDocument:
    """A document in numbers.

    :param file: its file name
    :param title: its first heading, or empty
    :param claims: how many claims it states
    :param wrong: how many of them measurement contradicts
    :param coverage: how many of its lines are tested, or None if unknown
    """

    key: str
    file: str
    title: str
    claims: int
    wrong: int
    coverage: Coverage | None

    @property
    def line_counts(self) -> tuple[int | str, ...]:
        """Its lines, and how many are tested, untested, untestable and not cited."""
        found = self.coverage
        if found is None:
            return ("-",) * 5
        return found.lines, found.tested, found.untested, found.untestable, found.uncited


def _documents(data: ReportData) -> list[AuditedDocument]:
    return [_document(data, key, file) for key, file in sorted(data.files.items())]


def _document(data: ReportData, key: str, file: str) -> AuditedDocument:
    stated = [each for each in data.statements if document_of(each.claim) == key]
    heading = next((line for line in data.lines.get(key, ()) if line.startswith("# ")), "")
    wrong = sum(each.contradicts_document for each in stated)
    name = PurePosixPath(file).name
    return AuditedDocument(key, name, heading.removeprefix("# "), len(stated), wrong, data.coverage.get(key))
