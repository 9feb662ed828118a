"""Detects stale evidence: evidence of another version of a claim, of its experiment, or of the code under test."""

from __future__ import annotations

from rlverify.evidence.evidence_files import listed
from rlverify.evidence.figure_evidence import span_in_words
from rlverify.records.claims import Claim
from rlverify.records.measured import Evidence


def misfits(evidence: Evidence, claim: Claim, experiment: str, modules: tuple[tuple[str, str], ...]) -> list[str]:
    """Why committed evidence is stale: it is of another version of the claim or of its code; empty where it fits.

    :param experiment: digest of the experiment as it is now
    :param modules: (dotted name, digest) of each module under test as it is now
    """
    if evidence.figure is not None or claim.figure is not None:
        return _figure_misfits(evidence, claim) + digest_differences(evidence, experiment, modules)
    found = []
    if evidence.seeds != claim.seeds:
        found.append(f"measured with seeds {listed(evidence.seeds)}, the claim asks for {listed(claim.seeds)}")
    measured = tuple(each.variant for each in evidence.variants)
    if measured != claim.variants:
        found.append(f"measured in {', '.join(measured)}, the claim asks for {', '.join(claim.variants)}")
    return found + digest_differences(evidence, experiment, modules)


def digest_differences(committed: Evidence, experiment: str, modules: tuple[tuple[str, str], ...]) -> list[str]:
    """What has changed of the code that the evidence was measured of, as sentences."""
    was, now = dict(committed.module_digests), dict(modules)
    changed = [name for name in now if was.get(name) != now[name]] + sorted(was.keys() - now.keys())
    other = committed.experiment_digest != experiment
    return ["the experiment (claim, probe or fault) has changed since"] * other + (
        [f"{', '.join(changed)} changed since"] if changed else []
    )


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
