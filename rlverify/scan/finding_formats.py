"""The formats of findings by the name that ``rlverify scan --format`` takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from rlverify.scan.findings import ScanFinding
from rlverify.scan.findings_json import json_of
from rlverify.scan.findings_sarif import sarif_of
from rlverify.scan.findings_text import text_of

FINDING_FORMATS: Final[Mapping[str, Callable[[Sequence[ScanFinding]], str]]] = {
    "text": text_of,
    "json": json_of,
    "sarif": sarif_of,
}
