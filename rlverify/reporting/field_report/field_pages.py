"""Renders the field report as Markdown and as one HTML page; the same report gives the same bytes."""

from __future__ import annotations

import re
from typing import Any, Final

from rlverify.field.field_records import Checked, FieldReport
from rlverify.reporting.field_report import field_findings
from rlverify.reporting.field_report.effects_text import EFFECT_OF, HEADER, effect_rows
from rlverify.reporting.html_report import html_environment
from rlverify.reporting.markdown import TEMPLATES
from rlverify.reporting.markdown import environment as markdown_environment

FIELD_FORMATS: Final = ("md", "html")
VARIANTS: Final = {"defaults": "defaults", "awkward": "other settings"}
"""How the pages name the variants of a subject."""
STYLES: Final = ("report.css", "field-report.css")


def render_field_report(report: FieldReport, form: str) -> str:
    """The pages' text.

    :param form: ``md`` or ``html``
    """
    environment = html_environment() if form == "html" else markdown_environment(None)
    template = environment.get_template(f"field-report.{form}.j2")
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
        "variants": VARIANTS,
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
