"""Detects stale evidence: evidence of another version of a claim."""

from __future__ import annotations

from collections.abc import Sequence

from rlverify.evidence.evidence_files import listed
from rlverify.evidence.figure_evidence import criterion_digest, span_in_words
from rlverify.records.claims import Claim
from rlverify.records.measured import Evidence


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
    if not found and measured.criterion != criterion_digest(claim):
        found.append("judged by another criterion: the claim now names another experiment, quantity or tolerance")
    return found
