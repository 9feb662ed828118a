"""Verdicts and grades: pure functions of the evidence, and of a claim with its evidence and conditions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Final, Literal, TypeAlias

from rlverify.records.claims import NOT_STATED, Claim, FixGrade, Verdict
from rlverify.records.measured import Evidence, Run, VariantEvidence
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
        if evidence.figure.errors or evidence.figure.runs == 0:
            return Verdict.ERROR
        return VERDICT_OF_PLACE[place_of((evidence.figure.low, evidence.figure.high), evidence.figure.claimed)]
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


UNDER_CONDITION: Final = (Verdict.CONFIRMED, Verdict.REFUTED, Verdict.UNDECIDED)
"""The verdicts that say that a condition was measured."""
OWN: Final = (Verdict.CONFIRMED, Verdict.REFUTED, Verdict.NOT_REPRODUCED)
"""The verdicts that another condition can contradict."""


Confidence: TypeAlias = Literal["high", "medium", "low"]
CONFIDENCES: Final[tuple[Confidence, ...]] = ("high", "medium", "low")


@dataclass(frozen=True)
class Record:
    """A claim with its evidence, or None where there is no evidence, which a report shows as missing.

    :param misfits: why the evidence does not fit the claim as it is now, which a report shows as STALE
    :param changed: the changed code that a fallen claim executes, as `changed_by_claim` gives it; `fallen` replaces it
        by files
    """

    claim: Claim
    evidence: Evidence | None
    misfits: tuple[str, ...] = ()
    runs: tuple[Run, ...] = ()
    changed: tuple[str, ...] = ()
    conditions: tuple[Record, ...] = ()

    @cached_property
    def measured_verdict(self) -> Verdict | None:
        """What was measured under the claim's own condition, or None where nothing was."""
        if self.evidence is not None and self.misfits:
            return Verdict.STALE
        return judge(self.evidence) if self.evidence is not None else None

    @cached_property
    def measured_fix_grade(self) -> FixGrade | None:
        """What the documented fix does under the claim's own condition, or None where that was not measured."""
        return grade_fix(self.evidence) if self.evidence is not None and not self.misfits else None

    @cached_property
    def verdict(self) -> Verdict | None:
        """The verdict, or None where nothing was measured.

        UNDECIDED where not every condition agrees: under one of them, the verdict is another one, the runs do not
        decide it, or there is no result.
        """
        found = self.measured_verdict
        if found is None or found in NOT_MEASURED or found is Verdict.REGRESSED:
            return found
        agreeing = Verdict.CONFIRMED if found is Verdict.CONFIRMED else Verdict.REFUTED
        return found if self._all_are(agreeing, of_fix=False) else Verdict.UNDECIDED

    @cached_property
    def fix_grade(self) -> FixGrade | None:
        """What the documented fix does, or None where it has no grade; UNDECIDED where not every condition agrees."""
        found = self.measured_fix_grade
        if found is None:
            return None
        agreeing = Verdict.CONFIRMED if found is FixGrade.CURED else Verdict.REFUTED
        return found if self._all_are(agreeing, of_fix=True) else FixGrade.UNDECIDED

    def of_conditions(self, *, of_fix: bool) -> list[Verdict | None]:
        """The verdicts under the conditions of the claim, or under those of its fix."""
        return [each.measured_verdict for each in self.conditions if each.claim.of_fix is of_fix]

    def _all_are(self, verdict: Verdict, *, of_fix: bool) -> bool:
        return all(each is verdict for each in self.of_conditions(of_fix=of_fix))

    @property
    def own_as_expected(self) -> bool:
        """Whether verdict and grade under the claim's own condition are what the catalogue expects."""
        found = (self.measured_verdict, self.measured_fix_grade)
        return found == (self.claim.expected_verdict, self.claim.expected_fix_grade)

    @property
    def as_expected(self) -> bool:
        """Whether verdict and grade are what the catalogue expects, under every condition."""
        return self.own_as_expected and all(each.as_expected for each in self.conditions)

    @property
    def has_verdict(self) -> bool:
        """Whether measuring came to a verdict that says something of the claim."""
        return self.verdict is not None and self.verdict not in NOT_MEASURED

    @property
    def depends(self) -> bool:
        """Whether the claim has a verdict, and other conditions measured another one or did not decide."""
        own, others = self.measured_verdict, self.of_conditions(of_fix=False)
        return own in OWN and self.verdict is Verdict.UNDECIDED and all(each in UNDER_CONDITION for each in others)

    @property
    def fix_depends(self) -> bool:
        """Whether the fix has a grade, and other conditions measured another one or did not decide."""
        others = self.of_conditions(of_fix=True)
        return self.fix_grade is FixGrade.UNDECIDED and all(each in UNDER_CONDITION for each in others)

    def has_opposite(self, *, of_fix: bool) -> bool:
        """Whether the opposite verdict, or a fix that does the opposite, was measured under another condition."""
        holds = self.measured_fix_grade is FixGrade.CURED if of_fix else self.measured_verdict is Verdict.CONFIRMED
        return (Verdict.REFUTED if holds else Verdict.CONFIRMED) in self.of_conditions(of_fix=of_fix)

    @property
    def is_open(self) -> bool:
        """Whether nothing can be said of the claim or of its fix: a result is missing, or decides nothing."""
        fix_is_open = self.fix_grade is FixGrade.UNDECIDED and not self.fix_depends
        return not (self.has_verdict or self.depends) or fix_is_open

    @property
    def confidence(self) -> Confidence:
        """How sure the verdict is.

        low: the document does not give what was tested (a reconstruction, or an implied statement). medium: measured
        only under one condition, on a small synthetic problem or, if a figure, without training runs. high: measured
        on the component or in the training run that the claim is about, or under several conditions of the claim.
        """
        claim = self.claim
        if claim.basis in NOT_STATED:
            return "low"
        is_small = claim.scale == "toy" or (claim.figure is not None and claim.scale != "training")
        others = [each for each in self.of_conditions(of_fix=False) if each in UNDER_CONDITION]
        return "medium" if is_small and not (others or claim.invariant) else "high"

    @property
    def missing_conditions(self) -> list[str]:
        """The conditions without a result, in words."""
        return [each.claim.condition for each in self.conditions if each.measured_verdict not in UNDER_CONDITION]

    @property
    def is_bug(self) -> bool:
        """Whether a defect was re-injected and does harm: the claim is CONFIRMED, and its severity is not none."""
        claim = self.claim
        is_defect = claim.kind in ("defect", "finding") and claim.fault is not None and not claim.against_document
        return is_defect and claim.assessed != "none" and self.verdict is Verdict.CONFIRMED

    @property
    def fix_fails(self) -> bool:
        """Whether the documented fix does not cure the defect."""
        return self.fix_grade not in (None, FixGrade.CURED, FixGrade.UNDECIDED)

    @property
    def is_unsupported(self) -> bool:
        """Whether measurement does not support the claim as it is tested here: the statement, fix or recommendation."""
        return (
            self.has_verdict
            and self.verdict is not Verdict.REGRESSED
            and self.claim.kind != "null"
            and (self.claim.against_document == (self.verdict is Verdict.CONFIRMED) or self.fix_fails)
        )

    @property
    def contradicts_document(self) -> bool:
        """Whether what measurement does not support is the document's.

        A reconstruction or an implied statement is ours. Where the document states a possibility, only its fix counts.
        """
        if not self.is_unsupported or self.claim.basis in NOT_STATED:
            return False
        return self.fix_fails or not self.claim.hedge


def attached(records: Sequence[Record]) -> list[Record]:
    """Give each claim's record those of its conditions, unless it has them already."""
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record.claim.condition_of, []).append(record)
    if missing := found.keys() - {record.claim.id for record in records} - {""}:
        raise ValueError(f"records of conditions without their claim: {', '.join(sorted(missing))}")
    return [
        replace(record, conditions=record.conditions or tuple(found.get(record.claim.id, ()))) for record in records
    ]


def with_conditions(records: Sequence[Record]) -> list[Record]:
    """The records of claims, each with those of its conditions, which are in no other place."""
    return [record for record in attached(records) if not record.claim.condition_of]


class ClaimStatus(StrEnum):
    """What became of a claim; the worst comes first."""

    ERROR = "error"
    FAILED = "failed"
    SET_ASIDE = "set aside"
    PASSED = "passed"


def status_of(record: Record) -> ClaimStatus:
    """The status of a record; each of its conditions has its own."""
    verdict = record.measured_verdict
    if record.own_as_expected:
        return ClaimStatus.PASSED
    if record.claim.figure is not None and verdict is Verdict.UNDECIDED:
        return ClaimStatus.SET_ASIDE
    return ClaimStatus.ERROR if verdict is None or verdict in NOT_MEASURED else ClaimStatus.FAILED
