"""What a report is made of, and what a format has to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Protocol

from rlverify.records.claims import NOT_STATED, Claim, FixGrade, Verdict
from rlverify.records.measured import Evidence
from rlverify.records.runs import Run
from rlverify.verdicts.verdict import NOT_MEASURED, grade_fix, judge

UNDER_CONDITION: Final = (Verdict.CONFIRMED, Verdict.REFUTED, Verdict.UNDECIDED)
"""The verdicts that say that a condition was measured."""
OWN: Final = (Verdict.CONFIRMED, Verdict.REFUTED, Verdict.NOT_REPRODUCED)
"""The verdicts that another condition can contradict."""


@dataclass(frozen=True)
class Record:
    """A claim with its evidence, or None where there is no evidence, which a report shows as missing.

    :param misfits: why the evidence does not fit the claim as it is now, which a report shows as STALE
    :param runs: of a probe, where the claim was measured just now
    :param changed: the changed code that a fallen claim executes, as `changed_by_claim` gives it; `fallen` replaces it
        by files
    :param conditions: the same claim, measured under other conditions
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
    def is_opposed(self) -> bool:
        """Whether a claim or a fix depends on its conditions, and the opposite was measured under one of them."""
        of_claim = self.depends and self.has_opposite(of_fix=False)
        return of_claim or (self.fix_depends and self.has_opposite(of_fix=True))

    @property
    def is_open(self) -> bool:
        """Whether nothing can be said of the claim or of its fix: a result is missing, or decides nothing."""
        fix_is_open = self.fix_grade is FixGrade.UNDECIDED and not self.fix_depends
        return not (self.has_verdict or self.depends) or fix_is_open

    @property
    def missing_conditions(self) -> list[str]:
        """The conditions without a result, in words."""
        return [each.claim.condition for each in self.conditions if each.measured_verdict not in UNDER_CONDITION]

    @property
    def fix_fails(self) -> bool:
        """Whether the documented fix does not cure the defect."""
        return self.fix_grade not in (None, FixGrade.CURED, FixGrade.UNDECIDED)

    @property
    def is_unsupported(self) -> bool:
        """Whether measurement does not support the claim as it is tested here: the statement, fix or recommendation.

        A regression of our own code says nothing about it.
        """
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
    """The same records, those of claims with those of their conditions; what has some keeps these.

    :raises ValueError: if the claim of a condition is missing
    """
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record.claim.condition_of, []).append(record)
    if missing := found.keys() - {record.claim.id for record in records} - {""}:
        raise ValueError(f"records of conditions without their claim: {', '.join(sorted(missing))}")
    return [
        replace(record, conditions=record.conditions or tuple(found.get(record.claim.id, ()))) for record in records
    ]


def with_conditions(records: Sequence[Record]) -> list[Record]:
    """The records of claims, each with those of its conditions, which are in no other place.

    :raises ValueError: if the claim of a condition is missing
    """
    return [record for record in attached(records) if not record.claim.condition_of]


class Format(Protocol):
    """A format of the report: the same records give the same text, on any machine."""

    def format(self, records: Sequence[Record]) -> str:
        """The whole report as text, with a newline at its end."""
        ...
