"""What a report is made of, and what a format has to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
    """

    claim: Claim
    evidence: Evidence | None
    misfits: tuple[str, ...] = ()
    runs: tuple[Run, ...] = ()
    changed: tuple[str, ...] = ()

    @cached_property
    def verdict(self) -> Verdict | None:
        """What was measured, or None where nothing was."""
        if self.evidence is not None and self.misfits:
            return Verdict.STALE
        return judge(self.evidence) if self.evidence is not None else None

    @cached_property
    def fix_grade(self) -> FixGrade | None:
        """What the documented fix does, or None where none was measured."""
        return grade_fix(self.evidence) if self.evidence is not None and not self.misfits else None

    @property
    def as_expected(self) -> bool:
        """Whether verdict and grade are what the catalogue expects."""
        return (self.verdict, self.fix_grade) == (self.claim.expected_verdict, self.claim.expected_fix_grade)

    @property
    def has_verdict(self) -> bool:
        """Whether measuring came to a verdict that says something of the claim."""
        return self.verdict is not None and self.verdict not in NOT_MEASURED

    @property
    def fix_fails(self) -> bool:
        """Whether the documented fix does not cure the defect."""
        return self.fix_grade not in (None, FixGrade.CURED)

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


class Format(Protocol):
    """A format of the report: the same records give the same text, on any machine."""

    def format(self, records: Sequence[Record]) -> str:
        """The whole report as text, with a newline at its end."""
        ...
