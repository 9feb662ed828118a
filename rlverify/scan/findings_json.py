"""Findings as JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from rlverify.evidence.files import canonical_json
from rlverify.reporting.json_report import SCHEMA_VERSION
from rlverify.scan.findings import ScanFinding


def json_of(findings: Sequence[ScanFinding]) -> str:
    """One object with the list ``findings``; a field of a finding that it does not have is null or empty."""
    return canonical_json({"schema_version": SCHEMA_VERSION, "findings": [asdict(each) for each in findings]})
