"""SARIF 2.1.0 for code scanning: the file, and the results of one run.

A problem that is not of a fallen claim is a notification. So a run that could not measure differs from a clean one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
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


def sarif_rule(identifier: str, title: str, explanation: str, advice: str, level: str = "error") -> dict[str, Any]:
    """A kind of result."""
    return {
        "id": identifier,
        "shortDescription": {"text": title},
        "fullDescription": {"text": explanation},
        "help": {"text": advice},
        "defaultConfiguration": {"level": level},
    }


def sarif_result(
    rule: str, level: str, message: str, file: str, line: int, fingerprint: str, *, scheme: str, field: str = ""
) -> dict[str, Any]:
    """One result.

    :param file: path with slashes, relative to the folder of the project or absolute
    :param fingerprint: the same wherever the result moves in its file
    """
    path = PurePosixPath(file)
    is_absolute = path.is_absolute()
    place = {"uri": f"file://{quote(os.fsencode(path))}"} if is_absolute else {"uri": quote(file), "uriBaseId": ROOT}
    location: dict[str, Any] = {"physicalLocation": {"artifactLocation": place, "region": {"startLine": line}}}
    if field:
        location["logicalLocations"] = [{"fullyQualifiedName": field, "kind": "member"}]
    # GitHub reads the second, and else hashes the line, which an edit changes.
    line_hash = f"{sha256(fingerprint.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}:1"
    return {
        "ruleId": rule,
        "level": level,
        "message": {"text": message},
        "locations": [location],
        "partialFingerprints": {scheme: fingerprint, "primaryLocationLineHash": line_hash},
    }


def sarif_document(
    rules: Sequence[dict[str, Any]],
    results: Iterable[dict[str, Any]],
    *,
    exit_code: int,
    successful: bool = True,
    notifications: Iterable[str] = (),
    root: str = "The folder of the project.",
) -> str:
    """Return the whole file.

    :param rules: of all results, as `sarif_rule` makes them
    :param notifications: errors that are not results, so that such a run differs from a clean one
    """
    numbers = {rule["id"]: number for number, rule in enumerate(rules)}
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
                "rules": [*rules],
            }
        },
        "originalUriBaseIds": {ROOT: {"description": {"text": root}}},
        "invocations": [invocation],
        "results": [{"ruleId": each["ruleId"], "ruleIndex": numbers[each["ruleId"]], **each} for each in results],
    }
    return json.dumps({"$schema": SCHEMA, "version": VERSION, "runs": [run]}, indent=2, ensure_ascii=False) + "\n"


def sarif_of_run(outcome: Outcome) -> str:
    """Return the whole file."""
    problems = [each for each in with_advice(outcome.problems) if not each.fell]
    return sarif_document(
        [
            sarif_rule(each.claim.id, each.claim.title, each.claim.statement, f"To reproduce: {each.command}")
            for each in outcome.fallen
        ],
        map(_result, outcome.fallen),
        exit_code=outcome.exit_code,
        successful=bool(outcome.records) and all(each.exit_code != HARNESS_FAILED for each in problems),
        notifications=map(str, problems),
    )


def _result(fallen: FallenClaim) -> dict[str, Any]:
    """At the first changed function of the first suspect; where the catalogue has the claim if that is elsewhere."""
    file, line = fallen.declared_in, fallen.line
    if fallen.suspects and not PurePosixPath(fallen.suspects[0]).is_absolute():
        file, line = fallen.suspects[0], fallen.suspect_line
    return sarif_result(
        fallen.claim.id, "error", "\n".join(block(fallen)), file, line or 1, fallen.claim.id, scheme="claim/v1"
    )
