"""SARIF 2.1.0 for code scanning: the file, and the results of one run.

A problem that is not of a fallen claim is a notification. So a run that could not measure differs from a clean one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import metadata
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import quote

from rlverify.records.problems import HARNESS_FAILED, with_advice
from rlverify.reporting.outcome import FallenClaim, Outcome, block

VERSION: Final = "2.1.0"
SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
ROOT: Final = "%SRCROOT%"
"""The folder of the project, as readers of SARIF fill it in."""


@dataclass(frozen=True)
class SarifRule:
    """A kind of result."""

    identifier: str
    title: str
    explanation: str
    help: str
    level: str = "error"


@dataclass(frozen=True)
class SarifResult:
    """One result.

    :param file: path with slashes, relative to the folder of the project or absolute
    :param fingerprint: the same wherever the result moves in its file
    """

    rule: str
    level: str
    message: str
    file: str
    line: int
    fingerprint: str
    scheme: str
    field: str = ""


def sarif_document(
    rules: Sequence[SarifRule],
    results: Iterable[SarifResult],
    *,
    exit_code: int,
    successful: bool = True,
    notifications: Iterable[str] = (),
    root: str = "The folder of the project.",
) -> str:
    """Return the whole file.

    :param notifications: errors that are not results, so that such a run differs from a clean one
    """
    numbers = {rule.identifier: number for number, rule in enumerate(rules)}
    invocation = {
        "executionSuccessful": successful,
        "exitCode": exit_code,
        "toolExecutionNotifications": [{"level": "error", "message": {"text": each}} for each in notifications],
    }
    run = {
        "tool": {
            "driver": {
                "name": "rlverify",
                "version": metadata.version("rlverify"),
                "rules": [_rule(rule) for rule in rules],
            }
        },
        "originalUriBaseIds": {ROOT: {"description": {"text": root}}},
        "invocations": [invocation],
        "results": [_result(result, numbers[result.rule]) for result in results],
    }
    return json.dumps({"$schema": SCHEMA, "version": VERSION, "runs": [run]}, indent=2, ensure_ascii=False) + "\n"


def _rule(rule: SarifRule) -> dict[str, Any]:
    return {
        "id": rule.identifier,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.explanation},
        "help": {"text": rule.help},
        "defaultConfiguration": {"level": rule.level},
    }


def _result(result: SarifResult, number: int) -> dict[str, Any]:
    path = PurePosixPath(result.file)
    place = {"uri": path.as_uri()} if path.is_absolute() else {"uri": quote(result.file), "uriBaseId": ROOT}
    location: dict[str, Any] = {"physicalLocation": {"artifactLocation": place, "region": {"startLine": result.line}}}
    if result.field:
        location["logicalLocations"] = [{"fullyQualifiedName": result.field, "kind": "member"}]
    # GitHub reads the second, and else hashes the line, which an edit changes.
    line_hash = f"{sha256(result.fingerprint.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}:1"
    return {
        "ruleId": result.rule,
        "ruleIndex": number,
        "level": result.level,
        "message": {"text": result.message},
        "locations": [location],
        "partialFingerprints": {result.scheme: result.fingerprint, "primaryLocationLineHash": line_hash},
    }


def sarif_of_run(outcome: Outcome) -> str:
    """Return the whole file."""
    problems = [each for each in with_advice(outcome.problems) if not each.fell]
    return sarif_document(
        [
            SarifRule(each.claim.id, each.claim.title, each.claim.statement, f"To reproduce: {each.command}")
            for each in outcome.fallen
        ],
        map(_result_of_sarif, outcome.fallen),
        exit_code=outcome.exit_code,
        successful=bool(outcome.records) and all(each.exit_code != HARNESS_FAILED for each in problems),
        notifications=map(str, problems),
    )


def _result_of_sarif(fallen: FallenClaim) -> SarifResult:
    """At the first changed function of the first suspect; where the catalogue has the claim if that is elsewhere."""
    file, line = fallen.declared_in, fallen.line
    if fallen.suspects and not PurePosixPath(fallen.suspects[0]).is_absolute():
        file, line = fallen.suspects[0], fallen.suspect_line
    return SarifResult(
        fallen.claim.id, "error", "\n".join(block(fallen)), file, line or 1, fallen.claim.id, scheme="claim/v1"
    )
