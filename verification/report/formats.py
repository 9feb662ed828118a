"""The reports that other programs read, by the name under which they are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from verification.report.interface import Format
from verification.report.json import JsonReport
from verification.report.junit import JUnitReport
from verification.report.step_summary import StepSummary

FORMATS: Final[Mapping[str, Format]] = {
    "json": JsonReport(),
    "junit": JUnitReport(),
    "step-summary": StepSummary(),
}
