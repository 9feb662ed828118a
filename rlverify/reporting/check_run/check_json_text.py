"""The records of a run of the checks as JSON."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from rlverify.checks.check_records import CheckRecord
from rlverify.evidence.files import canonical_json
from rlverify.reporting.check_run.check_outcome import CheckedSubject, CheckRun, summary
from rlverify.reporting.check_run.check_places import shown_path
from rlverify.reporting.json_report import SCHEMA_VERSION


def json_of_checks(run: CheckRun, folder: Path) -> str:
    """The exit code, a summary, and for each subject its place and records.

    :param folder: that paths are relative to
    """
    content = {
        "schema_version": SCHEMA_VERSION,
        "exit_code": run.exit_code,
        "summary": summary(run),
        "subjects": [_subject(each, folder) for each in run.subjects],
    }
    return canonical_json(content)


def _subject(checked: CheckedSubject, folder: Path) -> dict[str, Any]:
    target = checked.target
    return {
        "name": target.subject.name,
        "target": target.text,
        "file": shown_path(target.file, folder),
        "line": target.line,
        "checks": [_record(each) for each in checked.records],
    }


def _record(record: CheckRecord) -> dict[str, Any]:
    content = asdict(record)
    finding = content.pop("finding")
    del content["subject"], content["known"]
    return {
        **content,
        **finding,
        "status": record.status.value,
        "outcome": record.outcome,
        "as_expected": not record.is_unexpected,
        "expected_failure": record.expected_failure,
        "expected_causes": record.known.causes if record.known else (),
    }
