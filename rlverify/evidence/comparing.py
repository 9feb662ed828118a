"""Compares committed evidence with fresh evidence, and with the claim as it is now."""

from __future__ import annotations

from collections.abc import Sequence

from rlverify.evidence.evidence_files import listed
from rlverify.evidence.summarising import compare_figures, criterion_digest, span_in_words
from rlverify.records.claims import Claim
from rlverify.records.measured import Evidence, SymptomEvidence, VariantEvidence
from rlverify.verdicts.verdict import grade_fix, judge


def compare(committed: Evidence, fresh: Evidence, tolerance: float = 0.0, *, repeats: bool = False) -> list[str]:
    """Where fresh evidence differs from what is committed, as sentences; empty where they agree.

    :param tolerance: of a figure, as in `rlverify.records.claims.Figure`, and so is `repeats`
    """
    differences = _compare_outcomes(committed, fresh)
    if committed.figure is not None and fresh.figure is not None:
        return differences + compare_figures(committed.figure, fresh.figure, tolerance, repeats=repeats)
    if committed.seeds != fresh.seeds:
        differences.append(f"seeds {listed(fresh.seeds)} instead of {listed(committed.seeds)}")
    for variant in fresh.variants:
        before = committed.variant(variant.variant)
        differences += _compare_symptoms(before, variant) if before is not None else [f"{variant.variant} is new"]
    missing = {each.variant for each in committed.variants} - {each.variant for each in fresh.variants}
    differences += [f"{name} is no longer measured" for name in sorted(missing)]
    return differences


def _compare_outcomes(committed: Evidence, fresh: Evidence) -> list[str]:
    differences = []
    if judge(committed) != judge(fresh):
        differences.append(f"{judge(fresh).value} instead of {judge(committed).value}")
    if grade_fix(committed) != grade_fix(fresh):
        now, then = (grade.value if grade else "no grade" for grade in (grade_fix(fresh), grade_fix(committed)))
        differences.append(f"fix {now} instead of {then}")
    return differences


def _compare_symptoms(committed: VariantEvidence, fresh: VariantEvidence) -> list[str]:
    was, now = ({each.symptom: each for each in side.symptoms} for side in (committed, fresh))
    differences = [f"{fresh.variant}: {name!r} is new" for name in now if name not in was]
    differences += [f"{fresh.variant}: {name!r} is no longer observed" for name in was if name not in now]
    for name in was.keys() & now.keys():
        if was[name] != now[name]:
            differences.append(f"{fresh.variant}: {name!r} observed {_told(now[name])}, committed {_told(was[name])}")
    if (committed.reached, committed.held_runs, committed.runs) != (fresh.reached, fresh.held_runs, fresh.runs):
        differences.append(f"{fresh.variant}: held in {fresh.held_runs} of {fresh.runs} runs, reached {fresh.reached}")
    return sorted(differences)


def _told(symptom: SymptomEvidence) -> str:
    """What was observed and expected; a text is left out where it differs between runs or machines."""
    observed = "" if symptom.after is None else f"{symptom.after} "
    expected = "" if symptom.before is None else f"expected {symptom.before}, "
    return f"{observed}({expected}holds {symptom.held_runs}/{symptom.runs})"


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
