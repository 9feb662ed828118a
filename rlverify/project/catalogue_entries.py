"""The tables of a catalogue file as they are written, each checked before any of them is used."""

from __future__ import annotations

import math
from datetime import date
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    model_validator,
)

from rlverify.project.citations import Documents
from rlverify.records.claims import (
    Basis,
    ClaimKind,
    DocumentedProblem,
    DocumentGives,
    FixGrade,
    Scale,
    Severity,
    Verdict,
)

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
IDENTIFIER = r"^[A-Z][A-Z0-9]*(-[A-Z0-9]+)*$"
Identifier = Annotated[str, StringConstraints(pattern=IDENTIFIER)]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
Seed = Annotated[int, Field(strict=True, ge=0, lt=2**32)]

UNWRITTEN_TITLE = "The bug in a few words"
UNWRITTEN_STATEMENT = "What is claimed, in a sentence."
"""What a new claim says until somebody writes it; the gate asks for it."""

MINIMUM_RUNS = 5
"""Paired runs of a figure; resampling fewer gives too few different means for an interval."""


def _documents(info: ValidationInfo) -> Documents:
    """The documents that the entry may cite, which the reader of the file hands over as the context."""
    context: Any = info.context
    found: Documents = context["documents"]
    return found


def _citation(text: str, info: ValidationInfo) -> str:
    _documents(info).cite(text)
    return text


Cite = Annotated[str, AfterValidator(_citation)]

EXPECTED_WITH_FAULT = (Verdict.CONFIRMED, Verdict.NOT_REPRODUCED)
EXPECTED_WITHOUT_FAULT = (Verdict.CONFIRMED, Verdict.REFUTED)


def can_be_true_and_false(claimed: tuple[float, float]) -> tuple[float, float]:
    """The ends of what is claimed."""
    low, high = claimed
    if not low < high:
        raise ValueError(f"from {low:g} to {high:g} holds no interval; write the lower end first")
    if math.isinf(low) and math.isinf(high):
        raise ValueError("every number lies between its ends, so that nothing could refute it")
    return claimed


Claimed = Annotated[tuple[float, float], AfterValidator(can_be_true_and_false)]


class ClaimedFigureEntry(BaseModel):
    """The ``[claim.figure]`` table of a claim."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    quantity: Text
    unit: Text
    claimed: Claimed
    runs: Annotated[int, Field(strict=True, ge=MINIMUM_RUNS)]
    power: Annotated[float, Field(ge=0.8, le=1)]
    pilot: Text
    tolerance: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    repeats: Annotated[bool, Field(strict=True)] = True
    document_gives: DocumentGives = "interval"


class EarlierEntry(BaseModel):
    """One ``[[claim.earlier]]`` or ``[[claim.condition.earlier]]`` table: a criterion that was changed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    criterion: Text
    verdict: Verdict
    until: date
    why: Text


class ConditionEntry(BaseModel):
    """One ``[[claim.condition]]`` table: a figure that tests the claim under another condition."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    title: Text
    experiment: Name
    runs: Annotated[int, Field(strict=True, ge=MINIMUM_RUNS)]
    expected: Verdict
    quantity: Text | None = None
    unit: Text | None = None
    claimed: Claimed | None = None
    of_fix: Annotated[bool, Field(strict=True)] = False
    repeats: Annotated[bool, Field(strict=True)] = False
    earlier: tuple[EarlierEntry, ...] = ()


class ClaimEntry(BaseModel):
    """One ``[[claim]]`` table as it is written."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Identifier
    title: Text
    statement: Text
    probe: Name | None = None
    fault: Name | None = None
    expected: Verdict
    kind: ClaimKind = "defect"
    area: Text | None = None
    section: str = ""
    if_true: str = ""
    observed: str = ""
    fix_observed: str = ""
    documented_status: str = ""
    modules: tuple[Text, ...] = ()
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] | None = None
    shows: tuple[Text, ...] = ()
    against_document: Annotated[bool, Field(strict=True)] = False
    documented_fix: Name | None = None
    fix_statement: Text | None = None
    expected_fix_grade: FixGrade | None = None
    root_cause: Text | None = None
    severity: Text | None = None
    killed_by: tuple[Text, ...] = ()
    cites: tuple[Cite, ...] = ()
    part_of: Identifier | None = None
    problem: DocumentedProblem | None = None
    experiment: Name | None = None
    figure: ClaimedFigureEntry | None = None
    basis: Basis | None = None
    scale: Scale | None = None
    hedge: Text | None = None
    cause: Name | None = None
    assessed: Severity | None = None
    assessed_why: str = ""
    action: Text | None = None
    condition: tuple[ConditionEntry, ...] = ()
    invariant: Text | None = None
    settings: Text | None = None
    earlier: tuple[EarlierEntry, ...] = ()

    @model_validator(mode="after")
    def _is_measured_in_one_way(self) -> ClaimEntry:
        is_figure = self.kind == "figure"
        by_probe, by_experiment = ("probe", "seeds", "fault", "documented_fix"), ("experiment", "figure")
        needed, unused = (by_experiment, by_probe) if is_figure else (by_probe[:1], by_experiment)
        told = f"a {self.kind} is measured by its {needed[0]}"
        for field in needed:
            if not getattr(self, field):
                raise ValueError(field, f"is missing; {told}")
        for field in unused:
            if getattr(self, field):
                raise ValueError(field, f"{told}; leave this out")
        return self

    @model_validator(mode="after")
    def _fields_agree(self) -> ClaimEntry:
        needs_fault = self.kind in ("defect", "null")
        if needs_fault and self.fault is None:
            raise ValueError(
                "fault", f"is missing; a {self.kind} needs the fault that re-injects it, and other kinds need none"
            )
        if self.documented_fix is not None and self.fault is None:
            raise ValueError("documented_fix", "a fix is measured with the fault that it fixes; name the fault")
        for field in ("expected_fix_grade", "fix_statement"):
            if (self.documented_fix is None) != (getattr(self, field) is None):
                raise ValueError(field, "goes with documented_fix, and only with it")
        if self.expected_fix_grade is FixGrade.UNDECIDED:
            raise ValueError(
                "expected_fix_grade", "no single measurement gives UNDECIDED; expect what the claim's own probe gives"
            )
        allowed = EXPECTED_WITHOUT_FAULT if self.fault is None else EXPECTED_WITH_FAULT
        if self.expected not in allowed:
            choice = " or ".join(verdict.value for verdict in allowed)
            raise ValueError("expected", f"{'without' if self.fault is None else 'with'} a fault it can be {choice}")
        if self.kind == "null" and self.expected is not Verdict.NOT_REPRODUCED:
            raise ValueError("expected", "a null fault changes nothing, so expect NOT REPRODUCED")
        return self

    @model_validator(mode="after")
    def _conditions_fit(self) -> ClaimEntry:
        names = [each.name for each in self.condition]
        if len(set(names)) != len(names):
            raise ValueError("condition.name", "two conditions of a claim have the same name; rename one of them")
        for each in self.condition:
            for field in ("quantity", "unit", "claimed"):
                if self.figure is None and getattr(each, field) is None:
                    raise ValueError(f"condition.{field}", f"is missing in {each.name!r}; the claim has no figure")
            if each.of_fix and self.documented_fix is None:
                raise ValueError("condition.of_fix", f"{each.name!r} is about a fix, and the claim has none")
        return self
