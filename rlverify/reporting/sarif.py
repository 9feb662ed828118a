"""SARIF 2.1.0 of one run, for code scanning: a rule and a result for each claim that fell.

A problem that is not of a fallen claim is a notification. So a run that could not measure differs from a clean one.
"""

from __future__ import annotations

import json
from hashlib import sha256
from importlib import metadata
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import quote

from rlverify.records.exit_codes import HARNESS_FAILED
from rlverify.records.problems import with_advice
from rlverify.reporting.outcome import FallenClaim, Outcome
from rlverify.reporting.outcome_text import block

VERSION: Final = "2.1.0"
SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
ROOT: Final = "%SRCROOT%"
"""The folder of the project, as readers of SARIF fill it in."""


def sarif_of_run(outcome: Outcome) -> str:
    """The whole file."""
    driver = {
        "name": "rlverify",
        "version": metadata.version("rlverify"),
        "rules": [_rule(each) for each in outcome.fallen],
    }
    run = {
        "tool": {"driver": driver},
        "originalUriBaseIds": {ROOT: {"description": {"text": "The folder of the project."}}},
        "invocations": [_invocation(outcome)],
        "results": [_result(each, number) for number, each in enumerate(outcome.fallen)],
    }
    return json.dumps({"$schema": SCHEMA, "version": VERSION, "runs": [run]}, indent=2, ensure_ascii=False) + "\n"


def _invocation(outcome: Outcome) -> dict[str, Any]:
    """Whether all claims could be measured, and each problem that is not of a fallen claim."""
    problems = [each for each in with_advice(outcome.problems) if not each.fell]
    failed = not outcome.records or any(each.exit_code == HARNESS_FAILED for each in problems)
    return {
        "executionSuccessful": not failed,
        "exitCode": outcome.exit_code,
        "toolExecutionNotifications": [{"level": "error", "message": {"text": str(each)}} for each in problems],
    }


def _rule(fallen: FallenClaim) -> dict[str, Any]:
    claim = fallen.claim
    return {
        "id": claim.id,
        "shortDescription": {"text": claim.title},
        "fullDescription": {"text": claim.statement},
        "help": {"text": f"To reproduce: {fallen.command}"},
        "defaultConfiguration": {"level": "error"},
    }


def _result(fallen: FallenClaim, number: int) -> dict[str, Any]:
    """At the first changed function of the first suspect; where the catalogue has the claim if that is elsewhere."""
    file, line = fallen.declared_in, fallen.line
    if fallen.suspects and not PurePosixPath(fallen.suspects[0]).is_absolute():
        file, line = fallen.suspects[0], fallen.suspect_line
    location = {"physicalLocation": {"artifactLocation": artifact_location(file), "region": {"startLine": line}}}
    return {
        "ruleId": fallen.claim.id,
        "ruleIndex": number,
        "level": "error",
        "message": {"text": "\n".join(block(fallen))},
        "locations": [location],
        "partialFingerprints": _fingerprints(fallen.claim.id),
    }


def artifact_location(file: str) -> dict[str, str]:
    """Where a file is: relative to `ROOT`, or absolute.

    :param file: the path, with slashes
    """
    path = PurePosixPath(file)
    return {"uri": path.as_uri()} if path.is_absolute() else {"uri": quote(file), "uriBaseId": ROOT}


def _fingerprints(claim: str) -> dict[str, str]:
    """One per claim, whatever changed. GitHub reads the second, and else hashes the line, which an edit changes."""
    return {"claim/v1": claim, "primaryLocationLineHash": f"{sha256(claim.encode()).hexdigest()[:16]}:1"}
