"""The reports that other programs read, by the name under which they are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rlverify.reporting.json_report import JsonReport
from rlverify.reporting.junit import JUnitReport
from rlverify.reporting.record import Format
from rlverify.reporting.step_summary import StepSummary

FORMATS: Final[Mapping[str, Format]] = {
    "json": JsonReport(),
    "junit": JUnitReport(),
    "step-summary": StepSummary(),
}
