"""SARIF 2.1.0 of one run, for code scanning: a rule and a result for each claim that fell."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Any, Final

from rlverify.reporting.outcome import FallenClaim, Outcome
from rlverify.reporting.outcome_text import block

VERSION: Final = "2.1.0"
SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
ROOT: Final = "%SRCROOT%"
"""The folder of the project, as readers of SARIF fill it in."""


def sarif_of_run(outcome: Outcome) -> str:
    """The whole file."""
    driver = {"name": "rlverify", "rules": [_rule(each) for each in outcome.fallen]}
    results = [_result(each, number) for number, each in enumerate(outcome.fallen)]
    content = {"$schema": SCHEMA, "version": VERSION, "runs": [{"tool": {"driver": driver}, "results": results}]}
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _rule(fallen: FallenClaim) -> dict[str, Any]:
    claim = fallen.claim
    return {
        "id": claim.id,
        "shortDescription": {"text": claim.title},
        "fullDescription": {"text": claim.statement},
        "defaultConfiguration": {"level": "error"},
    }


def _result(fallen: FallenClaim, number: int) -> dict[str, Any]:
    """At the first changed function of the first suspect, or else where the catalogue has the claim."""
    file, line = (fallen.suspects[0], fallen.suspect_line) if fallen.suspects else (fallen.declared_in, fallen.line)
    place: dict[str, Any] = {"uri": file, "uriBaseId": ROOT}
    if PurePosixPath(file).is_absolute():
        place = {"uri": PurePosixPath(file).as_uri()}
    location = {"physicalLocation": {"artifactLocation": place, "region": {"startLine": line}}}
    return {
        "ruleId": fallen.claim.id,
        "ruleIndex": number,
        "level": "error",
        "message": {"text": "\n".join(block(fallen))},
        "locations": [location],
        "partialFingerprints": {"claim/v1": fallen.claim.id},
    }
