"""What every page has in common: templates, table cells, links."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PrefixLoader, StrictUndefined, pass_context
from jinja2.runtime import Context

from rlverify.records.claims import Claim
from rlverify.records.measured import Evidence, Variant
from rlverify.reporting import phrasing
from rlverify.reporting.report_data import ReportData, anchor, planted_code, spans

TITLES: Final[dict[Variant, str]] = {
    "healthy": "healthy",
    "faulty": "with the fault",
    "documented_fix": "with the fix",
}
TEMPLATES: Final = Path(__file__).parent / "templates"


def render(template: str, data: ReportData, **context: object) -> str:
    """A page from its template."""
    text = environment(data.templates).get_template(template).render(data=data, **context)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


@cache
def environment(own: Path | None) -> Environment:
    """What every template is rendered with.

    A template of the project replaces the engine's of the same name, which it can still extend as ``rlverify/NAME``.
    """
    engine = FileSystemLoader(TEMPLATES)
    folders = [FileSystemLoader(own)] if own is not None else []
    made = Environment(
        loader=ChoiceLoader([*folders, engine, PrefixLoader({"rlverify": engine})]),
        undefined=StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters: dict[str, Any] = {
        "cell": cell,
        "prose": prose,
        "anchor": anchor,
        "address": address,
        "source": source,
        "outcome": phrasing.outcome_in_words,
        "grade": phrasing.grade,
        "difference": phrasing.difference,
        "spread": phrasing.spread,
        "symptom": phrasing.symptom,
        "interval": phrasing.interval,
        "claimed": phrasing.claimed_in_words,
        "origin": phrasing.origin,
        "effect": phrasing.effect_in_words,
        "statement": phrasing.statement,
    }
    made.filters.update(filters)
    made.globals.update(
        titles=TITLES,
        symptom_rows=symptom_rows,
        cited=cited,
        planted_code=planted_code,
        limits=phrasing.limits,
        groups_of_conditions=phrasing.GROUPS_OF_CONDITIONS,
    )
    return made


@pass_context
def address(context: Context, claim: Claim) -> str:
    """Where the section of a claim is, for a link from any page."""
    return f"{context['data'].home(claim)}#{anchor(claim.id)}"


@pass_context
def source(context: Context, claim: Claim) -> str:
    """The key of the document that states a claim; ``ours`` for a finding."""
    return str(context["data"].source(claim))


def cited(data: ReportData, cites: tuple[str, ...]) -> str:
    """Links to the cited lines of the documents, separated by commas."""
    return ", ".join(_cited(data, cite) for cite in cites)


def _cited(data: ReportData, cite: str) -> str:
    document, first, last = spans(cite)
    lines = f"L{first}" if first == last else f"L{first}-L{last}"
    return f"[{cite}]({data.files[document]}?plain=1#{lines})"


def symptom_rows(evidence: Evidence) -> list[list[str]]:
    """One row a symptom: its name, then for each variant what became of it; the cells of a table."""
    symptoms = dict.fromkeys(each.symptom for variant in evidence.variants for each in variant.symptoms)
    return [
        [cell(name), *(_outcome(*phrasing.symptom_outcome(name, each)) for each in evidence.variants)]
        for name in symptoms
    ]


def _outcome(values: str, outcome: str) -> str:
    return f"{cell(values)}; {outcome}" if values else outcome


def prose(text: str) -> str:
    """A text that Markdown shows as it is written; what stands between backticks is code."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(part if number % 2 else _escaped(part) for number, part in enumerate(parts))


def _escaped(text: str) -> str:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace("\\", "\\\\").replace("*", "\\*")
    return re.sub(r"(?<!\w)_+|_+(?!\w)", lambda found: found[0].replace("_", "\\_"), escaped)


def cell(text: str) -> str:
    """A text that Markdown shows as it is written, inside its table cell."""
    return "<br>".join(prose(text).replace("|", "\\|").splitlines()) or "(empty)"
