"""The report for machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from rlverify.evidence.files import canonical_json
from rlverify.records.problems import outcome_of
from rlverify.reporting.outcome import FallenClaim, Outcome, summary
from rlverify.verdicts.verdict import Record

SCHEMA_VERSION: Final = 1
"""Of every JSON object that the command line gives; a field that is removed or changes its meaning raises it."""


class JsonReport:
    """``claims``, with one object per claim: the claim, its evidence, verdict and grade."""

    def format(self, records: Sequence[Record]) -> str:
        """Canonical JSON of all records."""
        return canonical_json({"schema_version": SCHEMA_VERSION, "claims": [as_object(record) for record in records]})


def json_of_run(outcome: Outcome) -> str:
    """The outcome of one run: exit code, fallen claims, problems, and the verdict and time of each claim."""
    return canonical_json({"schema_version": SCHEMA_VERSION, **run_as_object(outcome)})


def run_as_object(outcome: Outcome) -> dict[str, Any]:
    """The outcome of one run as JSON objects and lists."""
    fell = {each.claim.id for each in outcome.fallen}
    return {
        **outcome_of(outcome.problems),
        "summary": summary(outcome),
        "fallen": [_fallen_as_object(each) for each in outcome.fallen],
        "notes": list(outcome.notes),
        "selection": outcome.selection or None,
        "claims": [
            {
                "id": record.claim.id,
                "verdict": record.verdict,
                "expected_verdict": record.claim.expected_verdict,
                "fix_grade": record.fix_grade,
                "expected_fix_grade": record.claim.expected_fix_grade,
                "as_expected": record.as_expected and record.claim.id not in fell,
                "seconds": round(outcome.seconds[record.claim.id], 3),
            }
            for record in outcome.records
        ],
    }


def _fallen_as_object(fallen: FallenClaim) -> dict[str, Any]:
    content = asdict(fallen)
    return {**content, "claim": fallen.claim.id, "title": fallen.claim.title}


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
