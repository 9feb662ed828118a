"""Findings as SARIF 2.1.0 for code scanning."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from importlib import metadata
from typing import Any, Final

from rlverify.records.exit_codes import AS_EXPECTED, CLAIM_FELL
from rlverify.reporting.sarif import ROOT, SCHEMA, VERSION, artifact_location
from rlverify.scan.findings import RULES, ScanFinding, ScanRule

_NOT_SCANNED: Final = frozenset({"unreadable-file", "scan-limit"})


def sarif_of(findings: Sequence[ScanFinding]) -> str:
    """The whole file: one rule for each kind of finding, one result for each finding.

    Paths are relative to the current folder, which readers take for that of the repository.
    """
    names = sorted({each.rule for each in findings})
    driver = {
        "name": "rlverify",
        "version": metadata.version("rlverify"),
        "rules": [_rule(RULES[name]) for name in names],
    }
    run = {
        "tool": {"driver": driver},
        "originalUriBaseIds": {ROOT: {"description": {"text": "The folder that was scanned from."}}},
        "invocations": [{"executionSuccessful": True, "exitCode": CLAIM_FELL if findings else AS_EXPECTED}],
        "results": _results(findings, names),
    }
    return json.dumps({"$schema": SCHEMA, "version": VERSION, "runs": [run]}, indent=2, ensure_ascii=False) + "\n"


def _rule(rule: ScanRule) -> dict[str, Any]:
    return {
        "id": rule.identifier,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.explanation},
        "help": {"text": f"To fix it: {rule.remedy}."},
        "defaultConfiguration": {"level": "warning" if rule.identifier in _NOT_SCANNED else "error"},
    }


def _results(findings: Sequence[ScanFinding], names: Sequence[str]) -> list[dict[str, Any]]:
    seen: Counter[tuple[str, ...]] = Counter()
    results = []
    for finding in findings:
        key = (finding.path, finding.rule, finding.field, finding.message)
        results.append(_result(finding, names.index(finding.rule), _fingerprint(key, seen[key])))
        seen[key] += 1
    return results


def _result(finding: ScanFinding, rule_index: int, fingerprint: str) -> dict[str, Any]:
    place = {"artifactLocation": artifact_location(finding.path), "region": {"startLine": finding.line or 1}}
    location: dict[str, Any] = {"physicalLocation": place}
    if finding.field:
        location["logicalLocations"] = [{"fullyQualifiedName": finding.field, "kind": "member"}]
    where = f"{finding.field}: " if finding.field else ""
    return {
        "ruleId": finding.rule,
        "ruleIndex": rule_index,
        "level": finding.severity,
        "message": {"text": f"{where}{finding.message}\n{finding.remedy}"},
        "locations": [location],
        "partialFingerprints": {"finding/v1": fingerprint, "primaryLocationLineHash": f"{fingerprint[:16]}:1"},
    }


def _fingerprint(key: tuple[str, ...], number: int) -> str:
    """The same wherever the finding moves in its file; equal findings of a file are numbered."""
    return sha256("\0".join((*key, str(number))).encode("utf-8", "surrogatepass")).hexdigest()
