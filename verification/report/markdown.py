"""What every page has in common: templates, table cells, links."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from verification.model import Claim, Evidence, Variant
from verification.report import figure, words
from verification.report.book import DOCUMENTS, Book, anchor, home, source, spans

TITLES: Final[dict[Variant, str]] = {
    "healthy": "healthy",
    "faulty": "with the fault",
    "documented_fix": "with the fix",
}


def render(template: str, book: Book, **context: object) -> str:
    """A page from its template.

    :param context: what the template is given beside the book
    """
    text = environment().get_template(template).render(book=book, **context)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


@cache
def environment() -> Environment:
    """What every template is rendered with."""
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
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
        "outcome": words.outcome_in_words,
        "grade": words.grade,
        "difference": words.difference,
        "interval": words.interval,
        "claimed": figure.claimed_in_words,
        "origin": figure.origin,
        "effect": figure.effect_in_words,
        "statement": words.statement,
    }
    made.filters.update(filters)
    made.globals.update(titles=TITLES, symptom_rows=symptom_rows, cited=cited)
    return made


def address(claim: Claim) -> str:
    """Where the section of a claim stands, for a link from any page."""
    return f"{home(claim)}#{anchor(claim.id)}"


def cited(book: Book, cites: tuple[str, ...]) -> str:
    """Links to the cited lines of the documents, separated by commas."""
    return ", ".join(_cited(book, cite) for cite in cites)


def _cited(book: Book, cite: str) -> str:
    document, first, last = spans(cite)
    lines = f"L{first}" if first == last else f"L{first}-L{last}"
    return f"[{cite}]({DOCUMENTS}/{book.files[document]}?plain=1#{lines})"


def symptom_rows(evidence: Evidence) -> list[list[str]]:
    """One row a symptom: its name, then for each variant what became of it; the cells of a table."""
    symptoms = dict.fromkeys(each.symptom for variant in evidence.variants for each in variant.symptoms)
    return [
        [cell(name), *(_outcome(words.symptom_outcome(name, each)) for each in evidence.variants)] for name in symptoms
    ]


def _outcome(told: tuple[str, str]) -> str:
    values, outcome = told
    return f"{cell(values)}, {outcome}" if values else outcome


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
