"""Verdicts and grades: pure functions of the evidence."""

from __future__ import annotations

from collections.abc import Sequence

from rlverify.records.claims import FixGrade, Verdict
from rlverify.records.measured import Evidence, FigureEvidence, VariantEvidence
from rlverify.verdicts.statistics import Decision, IntervalPlace, ShareOutcome, decide, place_of

# Verdicts that say that the harness failed, or that it cannot tell; none of them counts as passed.
NOT_MEASURED = (Verdict.ERROR, Verdict.STALE, Verdict.UNREACHED, Verdict.UNDECIDED)

VERDICT_OF_PLACE: dict[IntervalPlace, Verdict] = {
    "within": Verdict.CONFIRMED,
    "apart": Verdict.REFUTED,
    "across": Verdict.UNDECIDED,
}


def judge(evidence: Evidence) -> Verdict:
    """The verdict on a claim; the worst that applies.

    With a fault: REGRESSED if healthy is violated, whatever became of the faulty runs. Else CONFIRMED if healthy holds
    and faulty is violated, NOT REPRODUCED if both hold. Where the claim says
    what its fault shows, faulty is violated if that and nothing else is, and held if none of it is. Without a fault:
    CONFIRMED if healthy holds, REFUTED if it is violated. A figure: CONFIRMED if its interval lies within what is
    claimed, REFUTED if it has nothing in common with it.
    """
    if evidence.figure is not None:
        return _judge_figure(evidence.figure)
    if _is_regressed(evidence):
        return Verdict.REGRESSED
    return _trouble(evidence.variants) or _judge_measured(evidence)


def _is_regressed(evidence: Evidence) -> bool:
    """Whether every run of the healthy variant ended and violated what the faulty variant is compared with."""
    healthy, faulty = evidence.variant("healthy"), evidence.variant("faulty")
    ended = healthy is not None and healthy.runs > 0 and not healthy.errors
    return ended and faulty is not None and healthy_outcome(evidence) == "violated"


def _trouble(variants: Sequence[VariantEvidence]) -> Verdict | None:
    """Why there is no verdict, or None."""
    if not variants or any(variant.errors or (variant.runs == 0 and variant.stale is None) for variant in variants):
        return Verdict.ERROR
    if any(variant.stale is not None for variant in variants):
        return Verdict.STALE
    return Verdict.UNREACHED if any(variant.reached is False for variant in variants) else None


def _judge_figure(figure: FigureEvidence) -> Verdict:
    if figure.errors or figure.runs == 0:
        return Verdict.ERROR
    return VERDICT_OF_PLACE[place_of((figure.low, figure.high), figure.claimed)]


def _judge_measured(evidence: Evidence) -> Verdict:
    faulty, outcome = evidence.variant("faulty"), healthy_outcome(evidence)
    if outcome is None:
        return Verdict.ERROR
    if outcome == "violated":
        return Verdict.REFUTED
    planted = outcome_under_fault(faulty, evidence.shows) if faulty is not None else None
    if "undecided" in (outcome, planted):
        return Verdict.UNDECIDED
    return Verdict.NOT_REPRODUCED if planted == "held" else Verdict.CONFIRMED


def decide_variant(variant: VariantEvidence) -> Decision:
    """Held if every observation of every run holds, violated if every run has a violated one."""
    return decide(variant.held_runs, variant.runs)


def healthy_outcome(evidence: Evidence) -> ShareOutcome | None:
    """What became of the code without a fault; None where it was not measured."""
    healthy = evidence.variant("healthy")
    return None if healthy is None else decide_variant(healthy).outcome


def outcome_under_fault(faulty: VariantEvidence, shows: tuple[str, ...]) -> ShareOutcome:
    """Violated if the symptoms that the claim names are, in every run, and no others; without names as for any."""
    if not shows:
        return decide_variant(faulty).outcome
    shares = _held_shares(faulty)
    if all(shares.get(name) == 1.0 for name in shows):
        return "held"
    return "violated" if shares == {name: float(name not in shows) for name in (*shares, *shows)} else "undecided"


def grade_fix(evidence: Evidence) -> FixGrade | None:
    """What the documented fix does to the symptoms of the fault; None where none was measured.

    A symptom that could not be observed in a variant counts as violated there. A fix that breaks a symptom which held
    under the fault is HARMFUL, whatever else it fixes; a fix of a fault that breaks nothing has NO EFFECT at best.
    """
    faulty, fixed = evidence.variant("faulty"), evidence.variant("documented_fix")
    if faulty is None or fixed is None or _trouble(evidence.variants) or judge(evidence) in NOT_MEASURED:
        return None
    before, after = _held_shares(faulty), _held_shares(fixed)
    symptoms = before.keys() | after.keys()
    if any(before.get(each, 0.0) == 1.0 and after.get(each, 0.0) < 1.0 for each in symptoms):
        return FixGrade.HARMFUL
    if not any(after.get(each, 0.0) > before.get(each, 0.0) for each in symptoms):
        return FixGrade.NO_EFFECT
    return FixGrade.CURED if all(after.get(each, 0.0) == 1.0 for each in symptoms) else FixGrade.PARTIAL


def _held_shares(variant: VariantEvidence) -> dict[str, float]:
    return {each.symptom: each.held_runs / variant.runs for each in variant.symptoms}
