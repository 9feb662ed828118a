"""Renders the field report as Markdown and as one HTML page; the same report gives the same bytes."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from rlverify.field.field_records import Checked, FieldReport
from rlverify.reporting.field_report import field_findings
from rlverify.reporting.field_report.effects_text import EFFECT_OF, HEADER, effect_rows
from rlverify.reporting.html_report import prose as html_prose
from rlverify.reporting.markdown import TEMPLATES, cell, prose

FIELD_FORMATS: Final = ("md", "html")
VARIANTS: Final = {"defaults": "defaults", "awkward": "other settings"}
"""How the pages name the variants of a subject."""
STYLES: Final = ("report.css", "field-report.css")


def render_field_report(report: FieldReport, form: str) -> str:
    """The pages' text.

    :param form: ``md`` or ``html``
    """
    template = _environment(form == "html").get_template(f"field-report.{form}.j2")
    context: dict[str, Any] = {
        "report": report,
        "findings": field_findings.findings(report.algorithms, report.reproductions),
        "optimizer_findings": field_findings.findings(report.optimizers),
        "counts": field_findings.counts(report.algorithms),
        "optimizer_counts": field_findings.counts(report.optimizers),
        "matrix": field_findings.matrix(report.algorithms),
        "optimizers": field_findings.matrix(report.optimizers),
        "legend": field_findings.LEGEND,
        "problems": [each for each in (*report.algorithms, *report.optimizers) if each.problem],
        "style": "".join((TEMPLATES / name).read_text(encoding="utf-8") for name in STYLES),
        "reproduction": reproduction,
        "effect_rows": effect_rows,
        "effect_of": EFFECT_OF,
        "effect_header": HEADER,
    }
    text = template.render(context)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def reproduction(checked: Checked, check: str) -> str:
    """Lines that run one check on one algorithm again."""
    module, _, name = checked.factory.partition(":")
    door, arguments = "check_algorithm", f'checks=["{check}"]'
    if checked.library == "torch":
        door = "check_optimizer"
    return (
        f"from {module} import {name}\n"
        f"from rlverify.checks import {door}\n"
        "\n"
        f"(record,) = {door}({name}, {arguments})\n"
        "print(record.outcome, record.finding, sep='\\n')"
    )


@cache
def _environment(is_html: bool) -> Environment:
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        autoescape=is_html,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters.update({"variant": VARIANTS.get, "cell": cell, "prose": html_prose if is_html else prose})
    return made
