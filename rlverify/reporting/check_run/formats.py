"""The formats of a run of the checks, by the name of the option."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from rlverify.reporting.check_run.json_text import json_of_checks
from rlverify.reporting.check_run.junit import junit_of_checks
from rlverify.reporting.check_run.outcome import CheckRun
from rlverify.reporting.check_run.sarif import sarif_of_checks

CHECK_FORMATS: Final[Mapping[str, Callable[[CheckRun, Path], str]]] = {
    "json": json_of_checks,
    "junit": junit_of_checks,
    "sarif": sarif_of_checks,
}
