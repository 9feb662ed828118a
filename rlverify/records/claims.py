"""What is claimed and what is expected of it: the frozen records of the catalogue."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final, Literal, TypeAlias

from rlverify.records.measured import VARIANTS, Variant

ClaimKind: TypeAlias = Literal["defect", "fix", "figure", "assurance", "finding", "null"]
DocumentGives: TypeAlias = Literal["interval", "statement"]

Basis: TypeAlias = Literal["code", "formula", "behaviour", "reconstruction", "implied", "reported"]
"""What a document gives for a claim: its code; a formula or number; the behaviour in words; only a title, so that the
mechanism is our reconstruction; no sentence at all, so that the statement is only implied; or, of a finding, nothing:
another project reported it, where it cannot be checked."""

NOT_STATED: Final[frozenset[Basis]] = frozenset({"reconstruction", "implied", "reported"})
"""The bases that never count against a document."""

Scale: TypeAlias = Literal["tensor", "toy", "training"]
"""What is measured: one component on tensors or files; a small synthetic problem; or ``learn()`` in an environment."""

Severity: TypeAlias = Literal["critical", "high", "medium", "low", "none"]


class Verdict(StrEnum):
    """What the evidence says about a claim; the last three say that there is no evidence."""

    CONFIRMED = "CONFIRMED"
    NOT_REPRODUCED = "NOT REPRODUCED"
    REFUTED = "REFUTED"
    UNDECIDED = "UNDECIDED"
    REGRESSED = "REGRESSED"
    UNREACHED = "UNREACHED"
    STALE = "STALE"
    ERROR = "ERROR"


class FixGrade(StrEnum):
    """What the fix that a document describes does to the symptoms of its fault.

    UNDECIDED says that not every condition gives the same grade; no single measurement comes to it.
    """

    CURED = "CURED"
    PARTIAL = "PARTIAL"
    NO_EFFECT = "NO EFFECT"
    HARMFUL = "HARMFUL"
    UNDECIDED = "UNDECIDED"


@dataclass(frozen=True)
class DocumentedProblem:
    """What a document says about a problem in addition to its existence, in our own words; empty where it says nothing.

    :param scenario: how it comes about, step by step
    :param priority: its place in the document's own order, P0 first
    :param probability: how likely it is said to be
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    category: str = ""
    components: tuple[str, ...] = ()
    scenario: tuple[str, ...] = ()
    impact: str = ""
    recommendation: str = ""
    priority: str = ""
    probability: str = ""
    effort: str = ""


@dataclass(frozen=True)
class Figure:
    """A number that a document claims, and the rule that decides whether measurement supports it.

    :param quantity: the key of what the experiment returns
    :param unit: in which the quantity and every number here is given
    :param claimed: the ends of what is claimed; one of them infinite where there is one end only, and then the other is
        no part of what is claimed: no change is no improvement
    :param runs: how many paired runs are made, with the seeds 0 to ``runs - 1``
    :param power: the probability of CONFIRMED if the statement is true, as the pilot gives it, in [0.8, 1]
    :param pilot: the runs, made with other seeds, from which ``runs`` and ``power`` were computed, in words; empty, and
        the power 0, under a condition, for which none were made
    :param tolerance: a fresh measurement agrees with the committed one if their intervals have a value in common or
        their means differ by at most this; 0 leaves the intervals alone to decide
    :param repeats: whether a run with the same seed agrees on another machine, to 1 % of the largest value; learning
        over many updates does not
    :param document_gives: ``interval``, the ends in ``claimed``; or ``statement``, of which the ends are our criterion
    """

    quantity: str
    unit: str
    claimed: tuple[float, float]
    runs: int
    power: float
    pilot: str
    tolerance: float = 0.0
    repeats: bool = True
    document_gives: DocumentGives = "interval"


@dataclass(frozen=True)
class EarlierCriterion:
    """How a claim was judged before its criterion was changed.

    :param until: the last day on which it was used, as in ``2026-11-25``
    """

    criterion: str
    verdict: Verdict
    until: str
    why: str


@dataclass(frozen=True)
class Claim:
    """One statement of a document, with the experiment that tests it.

    :param if_true: what is expected to be observed if it is true
    :param observed: what a person sees who tries it, in one sentence; empty where ``if_true`` says it
    :param fix_observed: what a person sees who applies the documented fix, in one sentence; can be empty
    :param expected_verdict: written before it is measured; the gate compares
    :param fault: name of the fault that re-injects the defect; None where the statement is tested on healthy code
    :param shows: the symptoms that the fault must violate, and the only ones; empty where each symptom of the probe is
        one of this claim, so that any of them will do
    :param against_document: whether CONFIRMED contradicts a document, because the document recommends what is planted
    :param documented_fix: name of the replacement that applies the document's fix to the faulty code
    :param probe: name of the probe that looks for the symptoms; empty where a figure is claimed
    :param seeds: one run of the probe, or one paired run of the experiment, for each
    :param cites: the lines of the documents that state it, as `rlverify.project.citations` reads them: ``notes:44-60``
    :param part_of: id of the problem that this is an effect, an option or an assurance of; empty where it is its own
    :param experiment: name of the experiment that measures the figure; empty where none is claimed
    :param basis: what the document gives for it; of a finding, for what it contradicts; None if unclassified
    :param scale: what the measurement runs on; None if unclassified
    :param hedge: the document's own word where it states only a possibility, such as ``may``; a case in which that does
        not happen does not contradict it
    :param cause: name of the reason that this claim shares with others; pages count them once
    :param assessed: our severity, after measuring: the harm that the defect or the wrong statement does, or None
    :param assessed_why: why ``assessed`` is not what the project's rule gives; empty where it is
    :param action: what an engineer should do about it, in one sentence
    :param condition_of: id of the claim that this measures again under another condition; empty for all others
    :param of_fix: whether the condition is about the claim's documented fix, which CONFIRMED says is a cure
    :param earlier: criteria that were changed after a result, the oldest first
    :param invariant: why no setting can change the verdict; empty where conditions show it
    :param settings: at which settings the claim was measured, and what others do to its verdict; can be empty
    """

    id: str
    title: str
    kind: ClaimKind
    area: str
    document: str
    statement: str
    expected_verdict: Verdict
    probe: str
    seeds: tuple[int, ...]
    fault: str | None = None
    modules: tuple[str, ...] = ()
    section: str = ""
    if_true: str = ""
    observed: str = ""
    fix_observed: str = ""
    documented_status: str = ""
    shows: tuple[str, ...] = ()
    against_document: bool = False
    documented_fix: str | None = None
    fix_statement: str = ""
    expected_fix_grade: FixGrade | None = None
    root_cause: str = ""
    severity: str = ""
    killed_by: tuple[str, ...] = ()
    cites: tuple[str, ...] = ()
    part_of: str = ""
    problem: DocumentedProblem | None = None
    experiment: str = ""
    figure: Figure | None = None
    basis: Basis | None = None
    scale: Scale | None = None
    hedge: str = ""
    cause: str = ""
    assessed: Severity | None = None
    assessed_why: str = ""
    action: str = ""
    condition_of: str = ""
    condition: str = ""
    of_fix: bool = False
    invariant: str = ""
    settings: str = ""
    earlier: tuple[EarlierCriterion, ...] = ()

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The variants that this claim is measured in; none where an experiment measures a figure."""
        if self.figure is not None:
            return ()
        planted = {"healthy": "", "faulty": self.fault, "documented_fix": self.documented_fix}
        return tuple(variant for variant in VARIANTS if planted[variant] is not None)
