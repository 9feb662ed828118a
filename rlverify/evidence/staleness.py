"""Detects stale evidence: evidence of another version of a claim, or of the code that its runs executed."""

from __future__ import annotations

from collections.abc import Sequence

from rlverify.evidence.evidence_files import listed
from rlverify.evidence.figure_evidence import span_in_words
from rlverify.project.current_code import CurrentCode
from rlverify.records.claims import Claim
from rlverify.records.code_records import CodeRecord
from rlverify.records.measured import Evidence

SETTINGS = "the settings of the claim"
UNRECORDED = "unknown code: digests.json has no entry"


def misfits(evidence: Evidence, claim: Claim) -> list[str]:
    """Why committed evidence is of another version of the claim, as sentences; empty where it fits."""
    if evidence.figure is not None or claim.figure is not None:
        return _figure_misfits(evidence, claim)
    found = []
    if evidence.seeds != claim.seeds:
        found.append(f"measured with seeds {listed(evidence.seeds)}, the claim asks for {listed(claim.seeds)}")
    measured = tuple(each.variant for each in evidence.variants)
    if measured != claim.variants:
        found.append(f"measured in {', '.join(measured)}, the claim asks for {', '.join(claim.variants)}")
    if evidence.shows != claim.shows:
        found.append("measured for other symptoms than `shows` names")
    return found


def changed_since(record: CodeRecord | None, settings: str, code: CurrentCode) -> tuple[str, ...]:
    """Names of all that has changed since a measurement was made, as in `CodeRecord.parts`; empty where nothing has.

    :param settings: digest of the claim's settings as they are now
    """
    if record is None:
        return (UNRECORDED,)
    return (*[SETTINGS] * (record.settings != settings), *code.changed(record))


def shortened(names: Sequence[str], most: int = 3) -> str:
    """Some names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _figure_misfits(evidence: Evidence, claim: Claim) -> list[str]:
    """Where committed evidence of a figure differs from what the claim asks for, whatever its code."""
    measured, asked = evidence.figure, claim.figure
    if measured is None or asked is None:
        how, what = ("by a probe", "figure") if measured is None else ("as a figure", claim.kind)
        return [f"measured {how}, the claim is now a {what}"]
    found = []
    if measured.runs != asked.runs:
        found.append(f"measured in {measured.runs} runs, the claim asks for {asked.runs}")
    if measured.claimed != asked.claimed:
        found.append(
            f"measured against {span_in_words(*measured.claimed)}, the claim says {span_in_words(*asked.claimed)}"
        )
    return found
