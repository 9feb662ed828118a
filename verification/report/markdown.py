"""The report for readers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from verification.model import Variant, Verdict
from verification.report.interface import Record

TITLES: dict[Variant, str] = {
    "healthy": "healthy",
    "faulty": "with the fault",
    "documented_fix": "with the documented fix",
}


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
            false_alarms=[record for record in nulls if record.verdict not in (None, Verdict.NOT_REPRODUCED)],
            titles=TITLES,
        )


def cell(text: str | None) -> str:
    """A text that stays inside its table cell; None is a text that varies with the seed or the machine."""
    if text is None:
        return "(varies)"
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace("\\", "\\\\").replace("|", "\\|")
    return "<br>".join(escaped.splitlines()) or "(empty)"
