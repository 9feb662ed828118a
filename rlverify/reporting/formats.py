"""The single texts: of committed evidence, for programs or as one page, and of one run; by the name of the option."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from rlverify.reporting.html_report import render_html
from rlverify.reporting.json_report import JsonReport, json_of_run
from rlverify.reporting.junit import JUnitReport, junit_of_run
from rlverify.reporting.outcome import Outcome
from rlverify.reporting.report_data import ReportData
from rlverify.reporting.sarif import sarif_of_run
from rlverify.reporting.step_summary import StepSummary, summary_of_run
from rlverify.verdicts.verdict import Format

FORMATS: Final[Mapping[str, Format]] = {
    "json": JsonReport(),
    "junit": JUnitReport(),
    "step-summary": StepSummary(),
}

PAGE_FORMATS: Final[Mapping[str, Callable[[ReportData], str]]] = {"html": render_html}

RUN_FORMATS: Final[Mapping[str, Callable[[Outcome], str]]] = {
    "junit": junit_of_run,
    "sarif": sarif_of_run,
    "summary": summary_of_run,
    "json": json_of_run,
}
