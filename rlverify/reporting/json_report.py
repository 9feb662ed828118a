"""The report for machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rlverify.evidence.files import canonical_json
from rlverify.reporting.record import Record


class JsonReport:
    """A list with one object per claim: the claim, its evidence, verdict and grade."""

    def format(self, records: Sequence[Record]) -> str:
        """Canonical JSON of all records."""
        return canonical_json([as_object(record) for record in records])


def as_object(record: Record) -> dict[str, Any]:
    """One record as JSON objects and lists; evidence is null where there is none."""
    evidence = asdict(record.evidence) if record.evidence is not None else None
    return {
        "claim": asdict(record.claim),
        "evidence": evidence,
        "misfits": list(record.misfits),
        "verdict": record.verdict,
        "fix_grade": record.fix_grade,
        "as_expected": record.as_expected,
        "contradicts_document": record.contradicts_document,
    }
