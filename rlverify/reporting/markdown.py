"""What every page has in common: templates, table cells, links."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PrefixLoader, StrictUndefined, pass_context
from jinja2.runtime import Context

from rlverify.records.claims import Claim
from rlverify.records.measured import SymptomEvidence
from rlverify.reporting import phrasing
from rlverify.reporting.phrasing import cell
from rlverify.reporting.report_data import ReportData, anchor, planted_code, spans
from rlverify.verdicts.verdict import Record

SHOWN_NAMES: Final = 3
"""Symptoms that one row of a table names."""
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
        "prose": phrasing.prose,
        "anchor": anchor,
        "address": address,
        "source": source,
        "outcome": phrasing.outcome_in_words,
        "grade": phrasing.grade,
        "difference": phrasing.difference,
        "spread": phrasing.spread,
        "sentence": phrasing.sentence,
        "interval": phrasing.interval,
        "claimed": phrasing.claimed_in_words,
        "origin": phrasing.origin,
        "effect": phrasing.effect_in_words,
        "statement": phrasing.statement,
    }
    made.filters.update(filters)
    made.globals.update(
        table_of_values=table_of_values,
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


def table_of_values(record: Record, *, in_full: bool = False) -> str:
    """The table of what was observed, with a row for each symptom; empty where there is none.

    Unless in full, only symptoms are shown that are not as expected in some variant, and they share a row if their
    values are the same and their names begin with the same word. What is not as expected is in bold type.
    """
    evidence = record.evidence.variants if record.evidence is not None else ()
    variants = [{one.symptom: one for one in each.symptoms} for each in evidence]
    rows: dict[tuple[str, ...], list[str]] = {}
    for name in dict.fromkeys(name for symptoms in variants for name in symptoms):
        found = [symptoms.get(name) for symptoms in variants]
        if not in_full and all(each is None or each.held_runs == each.runs for each in found):
            continue
        cells = ["-" if each is None else _emphasised(each) for each in found]
        if len(found) == 1 and found[0] is not None:
            cells.insert(0, "as stated" if found[0].before is None else cell(found[0].before))
        rows.setdefault((name if in_full else name.partition(" ")[0], *cells), []).append(name)
    bug = "as the document recommends" if record.claim.against_document else "with the bug"
    planted = ["healthy", bug, "with the document's fix"]
    columns = planted if len(variants) > 1 else ["expected if true", "measured"]
    names, common = _without_their_end([_in_one(names) for names in rows.values()])
    heading = [" ".join(["value", *common]), *columns[: max(len(variants), 2)]]
    body = [[cell(name), *cells] for name, (_, *cells) in zip(names, rows, strict=True)]
    table = [heading, ["---"] * len(heading), *body]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in table) if rows else ""


def _emphasised(symptom: SymptomEvidence) -> str:
    text = cell(phrasing.value(symptom))
    return text if symptom.held_runs == symptom.runs else f"**{text}**"


def _in_one(names: Sequence[str]) -> str:
    """Names that begin alike, as one."""
    if len(names) == 1:
        return names[0]
    split = [name.split(" ") for name in names]
    start = min(_alike(split), min(map(len, split)) - 1)
    end = min(_alike([words[:start:-1] for words in split]), min(map(len, split)) - start - 1)
    rests = [" ".join(words[start : len(words) - end]) for words in split]
    more = [f"and {len(rests) - SHOWN_NAMES} more"] if len(rests) > SHOWN_NAMES else []
    return " ".join([*split[0][:start], " / ".join([*rests[:SHOWN_NAMES], *more]), *split[0][len(split[0]) - end :]])


def _without_their_end(names: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Names without the words with which all of them end, and these words, which the heading of a table says once."""
    split = [name.split(" ") for name in names]
    common = min([_alike([words[::-1] for words in split]), *(len(words) - 1 for words in split)])
    if len(names) < 2 or common < 2:
        return names, ()
    return [" ".join(words[:-common]) for words in split], split[0][-common:]


def _alike(names: Sequence[Sequence[str]]) -> int:
    """How many words the names have in common at their start."""
    return sum(1 for _ in takewhile(lambda words: len(set(words)) == 1, zip(*names, strict=False)))
