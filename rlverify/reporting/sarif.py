"""SARIF of one run: a rule and a result for each claim that fell.

A problem that is not of a fallen claim is a notification. So a run that could not measure differs from a clean one.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from rlverify.records.exit_codes import HARNESS_FAILED
from rlverify.records.problems import with_advice
from rlverify.records.sarif_file import SarifResult, SarifRule, document
from rlverify.reporting.outcome import FallenClaim, Outcome
from rlverify.reporting.outcome_text import block


def sarif_of_run(outcome: Outcome) -> str:
    """Return the whole file."""
    problems = [each for each in with_advice(outcome.problems) if not each.fell]
    return document(
        [
            SarifRule(each.claim.id, each.claim.title, each.claim.statement, f"To reproduce: {each.command}")
            for each in outcome.fallen
        ],
        map(_result, outcome.fallen),
        exit_code=outcome.exit_code,
        successful=bool(outcome.records) and all(each.exit_code != HARNESS_FAILED for each in problems),
        notifications=map(str, problems),
    )


def _result(fallen: FallenClaim) -> SarifResult:
    """At the first changed function of the first suspect; where the catalogue has the claim if that is elsewhere."""
    file, line = fallen.declared_in, fallen.line
    if fallen.suspects and not PurePosixPath(fallen.suspects[0]).is_absolute():
        file, line = fallen.suspects[0], fallen.suspect_line
    return SarifResult(
        fallen.claim.id, "error", "\n".join(block(fallen)), file, line or 1, fallen.claim.id, scheme="claim/v1"
    )
