"""What a report is made of, and what a format has to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from rlverify.records.claims import NOT_STATED, Claim, FixGrade, Verdict
from rlverify.records.measured import Evidence
from rlverify.records.runs import Run
from rlverify.verdicts.verdict import NOT_MEASURED, grade_fix, judge


@dataclass(frozen=True)
class Record:
    """A claim with its evidence, or None where there is no evidence, which a report shows as missing.

    :param misfits: why the evidence does not fit the claim as it is now, which a report shows as STALE
    :param runs: of a probe, where the claim was measured just now
    :param changed: what changed since the claim was measured, as in `changed_since`; `fallen` replaces it by files
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
        """What was measured, UNDECIDED where it is another under another condition, or None where nothing was."""
        found = self.measured_verdict
        if found is None or found in NOT_MEASURED or found is Verdict.REGRESSED:
            return found
        agreeing = Verdict.CONFIRMED if found is Verdict.CONFIRMED else Verdict.REFUTED
        return found if self._all_are(agreeing, of_fix=False) else Verdict.UNDECIDED

    @cached_property
    def fix_grade(self) -> FixGrade | None:
        """What the documented fix does, UNDECIDED where that depends on a condition, or None where it has no grade."""
        found = self.measured_fix_grade
        if found is None:
            return None
        agreeing = Verdict.CONFIRMED if found is FixGrade.CURED else Verdict.REFUTED
        return found if self._all_are(agreeing, of_fix=True) else FixGrade.UNDECIDED

    def _all_are(self, verdict: Verdict, *, of_fix: bool) -> bool:
        return all(each.measured_verdict is verdict for each in self.conditions if each.claim.of_fix is of_fix)

    @property
    def as_expected(self) -> bool:
        """Whether verdict and grade are what the catalogue expects, under every condition."""
        found = (self.measured_verdict, self.measured_fix_grade)
        expected = (self.claim.expected_verdict, self.claim.expected_fix_grade)
        return found == expected and all(each.as_expected for each in self.conditions)

    @property
    def has_verdict(self) -> bool:
        """Whether measuring came to a verdict that says something of the claim."""
        return self.verdict is not None and self.verdict not in NOT_MEASURED

    @property
    def depends(self) -> bool:
        """Whether a verdict was measured under every condition, and they differ."""
        measured = [self.measured_verdict, *(each.measured_verdict for each in self.conditions)]
        return self.verdict is Verdict.UNDECIDED and self.measured_verdict is not self.verdict and None not in measured

    @property
    def fix_depends(self) -> bool:
        """Whether the fix was graded under every condition, and the grades differ."""
        measured = [each.measured_verdict for each in self.conditions if each.claim.of_fix]
        return self.fix_grade is FixGrade.UNDECIDED and None not in measured

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


def with_conditions(records: Sequence[Record]) -> list[Record]:
    """The records of claims, each with those of its conditions, which are none of their own any more."""
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record.claim.condition_of, []).append(record)
    return [replace(record, conditions=tuple(found.get(record.claim.id, ()))) for record in found.get("", ())]


class Format(Protocol):
    """A format of the report: the same records give the same text, on any machine."""

    def format(self, records: Sequence[Record]) -> str:
        """The whole report as text, with a newline at its end."""
        ...
