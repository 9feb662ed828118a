"""The report for readers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from verification.model import Evidence, Variant, VariantEvidence, Verdict
from verification.report.interface import Record

TITLES: dict[Variant, str] = {
    "healthy": "healthy",
    "faulty": "with the fault",
    "documented_fix": "with the fix",
}
NO_ALARM = (None, Verdict.STALE, Verdict.NOT_REPRODUCED)


class MarkdownReport:
    """Summary, one section per claim, and the null faults; claims that contradict their document come first."""

    def format(self, records: Sequence[Record]) -> str:
        """The whole report as GitHub-flavoured Markdown."""
        claims = [record for record in records if record.claim.kind != "null"]
        nulls = [record for record in records if record.claim.kind == "null"]
        environment = Environment(
            loader=FileSystemLoader(Path(__file__).parent / "templates"),
            undefined=StrictUndefined,
            autoescape=False,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )
        environment.filters["cell"] = cell
        return environment.get_template("bug-report.md.j2").render(
            claims=sorted(claims, key=lambda record: not record.contradicts_document),
            nulls=nulls,
            holes=[record for record in records if record.evidence is None],
            stale=[record for record in records if record.misfits],
            false_alarms=[record for record in nulls if record.verdict not in NO_ALARM],
            titles=TITLES,
            symptom_rows=symptom_rows,
        )


def symptom_rows(evidence: Evidence) -> list[list[str]]:
    """One row a symptom: its name, then for each variant what became of it; the cells of a table."""
    symptoms = dict.fromkeys(each.symptom for variant in evidence.variants for each in variant.symptoms)
    return [[cell(name), *(_outcome(name, variant) for variant in evidence.variants)] for name in symptoms]


def _outcome(name: str, variant: VariantEvidence) -> str:
    found = next((each for each in variant.symptoms if each.symptom == name), None)
    if found is None:
        return "not observed"
    word = "violated" if found.held_runs == 0 else "holds"
    count = found.runs if found.held_runs == 0 else found.held_runs
    outcome = f"{word} in {count}/{found.runs}"
    if found.before is None or found.after is None:
        return outcome
    return f"{cell(found.before)} → {cell(found.after)}, {outcome}"


def cell(text: str) -> str:
    """A text that stays inside its table cell."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace("\\", "\\\\").replace("|", "\\|")
    return "<br>".join(escaped.splitlines()) or "(empty)"
