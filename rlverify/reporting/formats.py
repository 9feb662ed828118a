"""The single texts of committed evidence and of one run, by the name of the option; those for JSON are written here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Final

from rlverify.evidence.files import canonical_json
from rlverify.records.problems import SCHEMA_VERSION, outcome_of
from rlverify.reporting.html_report import render_html
from rlverify.reporting.junit import junit_of_run
from rlverify.reporting.outcome import Outcome, summary
from rlverify.reporting.report_data import ReportData
from rlverify.reporting.sarif import sarif_of_run
from rlverify.reporting.step_summary import summary_of_run
from rlverify.verdicts.verdict import Record


def json_of_records(outcome: Outcome) -> str:
    """One object for each claim: the claim, its evidence, verdict and grade."""
    claims = [as_object(record) for record in outcome.records]
    return canonical_json({"schema_version": SCHEMA_VERSION, "claims": claims})


def json_of_run(outcome: Outcome) -> str:
    """The outcome of one run: exit code, fallen claims, problems, and the verdict and time of each claim."""
    fell = {each.claim.id for each in outcome.fallen}
    content = {
        "schema_version": SCHEMA_VERSION,
        **outcome_of(outcome.problems),
        "summary": summary(outcome),
        "fallen": [{**asdict(each), "claim": each.claim.id, "title": each.claim.title} for each in outcome.fallen],
        "notes": list(outcome.notes),
        "weakened": [asdict(each) for each in outcome.weakened],
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
    return canonical_json(content)


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


FORMATS: Final[Mapping[str, Callable[[Outcome], str]]] = {
    "json": json_of_records,
    "junit": junit_of_run,
    "step-summary": summary_of_run,
}
"""Of committed evidence, which `rlverify report` writes."""
PAGE_FORMATS: Final[Mapping[str, Callable[[ReportData], str]]] = {"html": render_html}
RUN_FORMATS: Final[Mapping[str, Callable[[Outcome], str]]] = {
    "junit": junit_of_run,
    "sarif": sarif_of_run,
    "summary": summary_of_run,
    "json": json_of_run,
}
