"""SARIF 2.1.0 of a run of the checks: a result for each check that is not as expected, where its factory is defined.

A check that could not be run is a notification, so that such a run differs from a clean one.
"""

from __future__ import annotations

import json
from hashlib import sha256
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import quote

from rlverify.checks.check_records import CheckRecord, Status
from rlverify.checks.rule import Rule
from rlverify.checks.table import details
from rlverify.checks.targets import Target
from rlverify.records.claims import Severity
from rlverify.reporting.check_run.check_outcome import CheckRun
from rlverify.reporting.check_run.check_places import shown_path
from rlverify.reporting.sarif import ROOT, SCHEMA, VERSION

LEVELS: Final[dict[Severity, str]] = {"critical": "error", "high": "error", "medium": "warning", "low": "note"}


def sarif_of_checks(run: CheckRun, folder: Path) -> str:
    """The whole file.

    :param folder: the root of the repository, that locations are relative to
    """
    found = [(each.target, record) for each in run.subjects for record in each.records if _is_result(record)]
    used = {record.check: target.subject.rule(record.check) for target, record in found}
    rules = list(used)
    driver = {
        "name": "rlverify",
        "version": metadata.version("rlverify"),
        "rules": [_rule(rule) for rule in used.values()],
    }
    content = {
        "tool": {"driver": driver},
        "originalUriBaseIds": {ROOT: {"description": {"text": "The folder of the project."}}},
        "invocations": [_invocation(run)],
        "results": [_result(target, record, rules.index(record.check), folder) for target, record in found],
    }
    return json.dumps({"$schema": SCHEMA, "version": VERSION, "runs": [content]}, indent=2, ensure_ascii=False) + "\n"


def _is_result(record: CheckRecord) -> bool:
    return record.is_unexpected and record.status is not Status.ERROR


def _invocation(run: CheckRun) -> dict[str, Any]:
    errors = [each for each in run.records if each.status is Status.ERROR]
    return {
        "executionSuccessful": not errors,
        "exitCode": run.exit_code,
        "toolExecutionNotifications": [{"level": "error", "message": {"text": details(each)}} for each in errors],
    }


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.name,
        "shortDescription": {"text": rule.expected},
        "fullDescription": {"text": rule.rationale},
        "help": {"text": f"Family {rule.family}, severity {rule.severity}. {rule.expected}"},
        "defaultConfiguration": {"level": LEVELS[rule.severity]},
    }


def _result(target: Target, record: CheckRecord, rule_index: int, folder: Path) -> dict[str, Any]:
    return {
        "ruleId": record.check,
        "ruleIndex": rule_index,
        "level": LEVELS[record.severity],
        "message": {"text": details(record)},
        "locations": [_location(target, folder)],
        "partialFingerprints": _fingerprints(f"{target.text} {record.check}"),
    }


def _location(target: Target, folder: Path) -> dict[str, Any]:
    file = shown_path(target.file, folder)
    place: dict[str, Any] = {"uri": quote(file), "uriBaseId": ROOT}
    if PurePosixPath(file).is_absolute():
        place = {"uri": PurePosixPath(file).as_uri()}
    return {"physicalLocation": {"artifactLocation": place, "region": {"startLine": target.line}}}


def _fingerprints(name: str) -> dict[str, str]:
    """One per subject and check, whatever changed in the file; GitHub reads the second."""
    return {"check/v1": name, "primaryLocationLineHash": f"{sha256(name.encode()).hexdigest()[:16]}:1"}
