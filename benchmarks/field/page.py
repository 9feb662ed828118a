"""Renders the field report as Markdown; the same report gives the same bytes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any, Final

from benchmarks.field import findings
from benchmarks.field.records import Checked, Effect, FieldReport
from rlverify.reporting.markdown import environment

VARIANTS: Final = {"defaults": "defaults", "awkward": "other settings"}
"""How the page names the variants of a subject."""
EFFECT_OF: Final = {
    "resume_is_exact": "A model trains, is saved, and trains on, which is the run without the defect. The run with it "
    "starts from the files of `save()`, `save_replay_buffer()` and `VecNormalize.save()`.",
    "set_parameters_copies": "A receiver gets the parameters of a source; then the source trains, and then the "
    "receiver. Without the defect it gets copies; with it, what `get_parameters()` returns.",
}
HEADER: Final = (
    "algorithm",
    "steps",
    "first step that differs",
    "distance",
    "return without the defect",
    "return with it",
)


def render_field_report(report: FieldReport) -> str:
    """Return the page's text."""
    context: dict[str, Any] = {
        "report": report,
        "findings": findings.findings(report.algorithms, report.reproductions),
        "optimizer_findings": findings.findings(report.optimizers),
        "counts": findings.counts(report.algorithms),
        "optimizer_counts": findings.counts(report.optimizers),
        "matrix": findings.matrix(report.algorithms),
        "optimizers": findings.matrix(report.optimizers),
        "legend": findings.LEGEND,
        "problems": [each for each in (*report.algorithms, *report.optimizers) if each.problem],
        "variants": VARIANTS,
        "reproduction": reproduction,
        "effect_rows": effect_rows,
        "effect_of": EFFECT_OF,
        "effect_header": HEADER,
    }
    text = environment(Path(__file__).parent).get_template("field-report.md.j2").render(context)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def reproduction(checked: Checked, check: str) -> str:
    """Return lines that run one check on one algorithm again."""
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


def effect_rows(effects: Sequence[tuple[str, Effect]]) -> list[tuple[str, ...]]:
    """Return a row of cells for each algorithm, below `HEADER`."""
    return [
        (
            name,
            str(effect.steps),
            ", ".join("none" if each is None else str(each) for each in effect.first_difference),
            _span(effect.distance, 2),
            _span(effect.returns, 0),
            _span(effect.returns_with, 0),
        )
        for name, effect in effects
    ]


def _span(values: Sequence[float], digits: int) -> str:
    """Return the mean of some values, with the smallest and the largest."""
    return f"{mean(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"
