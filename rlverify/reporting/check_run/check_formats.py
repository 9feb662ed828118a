"""The formats of a run of the checks, by the name of the option."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from rlverify.reporting.check_run.check_json_text import json_of_checks
from rlverify.reporting.check_run.check_junit import junit_of_checks
from rlverify.reporting.check_run.check_outcome import CheckRun
from rlverify.reporting.check_run.check_sarif import sarif_of_checks

CHECK_FORMATS: Final[Mapping[str, Callable[[CheckRun, Path], str]]] = {
    "json": json_of_checks,
    "junit": junit_of_checks,
    "sarif": sarif_of_checks,
}
