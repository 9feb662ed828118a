"""Renders the field report as Markdown and as one HTML page; the same report gives the same bytes."""

from __future__ import annotations

import re
from typing import Any, Final

from rlverify.field.field_records import Checked, FieldReport
from rlverify.reporting.field_report import field_findings
from rlverify.reporting.field_report.effects_text import EFFECT_OF, HEADER, effect_rows
from rlverify.reporting.html_report import html_of
from rlverify.reporting.markdown import environment

FIELD_FORMATS: Final = ("md", "html")
VARIANTS: Final = {"defaults": "defaults", "awkward": "other settings"}
"""How the pages name the variants of a subject."""


def render_field_report(report: FieldReport, form: str) -> str:
    """The pages' text.

    :param form: ``md`` or ``html``
    """
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
        "variants": VARIANTS,
        "reproduction": reproduction,
        "effect_rows": effect_rows,
        "effect_of": EFFECT_OF,
        "effect_header": HEADER,
    }
    text = environment(None).get_template("field-report.md.j2").render(context)
    page = re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"
    return html_of("Field report", {"field-report.md": page}) if form == "html" else page


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
