"""The outcome of one run of the gate or of an audit; frozen records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rlverify.records.claims import Claim
from rlverify.records.problems import Problem, ProblemKind, exit_code_of, is_regression
from rlverify.reporting.record import Record

if TYPE_CHECKING:
    from rlverify.checks.check_records import CheckRecord

RUN: Final = re.compile(r"^(\w+, )?seed \d+: ")
"""What a reason begins with that is about one run of several."""


@dataclass(frozen=True)
class SymptomChange:
    """A symptom that is not as it was or should be.

    :param symptom: its name, after the variant in which it was observed where that is not the healthy one
    """

    symptom: str
    expected: str
    observed: str


@dataclass(frozen=True)
class FallenClaim:
    """A claim that fell, and what a reader needs to find out why.

    :param kind: the worst of its problems
    :param headline: what was measured and expected, in a few words
    :param changes: the symptoms that differ, the most telling first
    :param reason: why it fell, in a sentence, where no symptom shows it; else empty
    :param suspects: files that may be the reason, the likeliest first; relative to the project where they are in it
    :param suspect_line: the line of the first of them in which its first changed function begins, from 1
    :param edit: the lines that changed there, as a diff has them: "- " before an old one, "+ " before a new one
    :param changed: those of them that changed since the base
    :param changed_parts: what changed of that which its runs executed, as `changed_by_claim` gives it
    :param declared_in: the file of the catalogue, likewise
    :param line: of that file, from 1
    :param command: what reproduces it
    """

    claim: Claim
    kind: ProblemKind
    headline: str
    changes: tuple[SymptomChange, ...]
    reason: str
    suspects: tuple[str, ...]
    suspect_line: int
    edit: tuple[str, ...]
    changed: tuple[str, ...]
    changed_parts: tuple[str, ...]
    declared_in: str
    line: int
    command: str

    @property
    def cause(self) -> tuple[object, ...]:
        """The same for claims that fell for the same reason, and for all figures of which only values differ."""
        if self.claim.figure is not None and self.kind == "values":
            return self.kind, "figure"
        return self.kind, RUN.sub("", self.reason) or self.changes


@dataclass(frozen=True)
class Outcome:
    """All that a run measured and found.

    :param fallen: the worst first
    :param problems: all problems, those of the fallen claims too
    :param seconds: what measuring each claim took, by its id; a run that several claims need is shared among them
    :param checks: the records of the project's suites
    :param selection: which claims were measured, where not all were
    """

    records: tuple[Record, ...]
    problems: tuple[Problem, ...]
    fallen: tuple[FallenClaim, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    selection: str = ""
    checks: tuple[CheckRecord, ...] = ()

    @property
    def exit_code(self) -> int:
        """As `rlverify.records.exit_codes` says."""
        return exit_code_of(self.problems)

    @property
    def regressed(self) -> bool:
        """Whether a claim fell by more than its values."""
        return is_regression(self.problems)
