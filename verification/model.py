"""The records that travel from the catalogue to the report; frozen, and free of everything but the standard library."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeAlias, get_args

Variant: TypeAlias = Literal["healthy", "faulty", "documented_fix"]
VARIANTS: tuple[Variant, ...] = get_args(Variant)
Kind: TypeAlias = Literal["defect", "fix", "figure", "assurance", "finding", "null"]
Gives: TypeAlias = Literal["interval", "statement", "nothing"]


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
    """What the fix that a document describes does to the symptoms of its fault."""

    CURED = "CURED"
    PARTIAL = "PARTIAL"
    NO_EFFECT = "NO EFFECT"
    HARMFUL = "HARMFUL"


@dataclass(frozen=True)
class Observation:
    """One symptom, measured once.

    :param symptom: what was looked at; the same words in every variant and seed
    :param before: the printed value before the event under test
    :param after: the printed value after it
    :param holds: whether the value is as it should be
    :param repeats: False where the texts differ between machines (raw floats); evidence then keeps only ``holds``
    :param roughly: ``after`` as a bound or in words, where these repeat and its digits do not; evidence keeps them
    """

    symptom: str
    before: str
    after: str
    holds: bool
    repeats: bool = True
    roughly: str | None = None

    def __post_init__(self) -> None:
        texts = (self.symptom, self.before, self.after)
        if not all(isinstance(text, str) for text in texts) or type(self.holds) is not bool:
            raise TypeError(f"an observation takes three texts and a bool, not {texts} and {self.holds!r}")


@dataclass(frozen=True)
class Run:
    """One probe, run once under one variant and one seed.

    :param executions: how often the planted fault ran; None where nothing was planted
    :param error: one line, where the probe crashed or its process died
    :param stale: the fault's target has changed, so that nothing was run
    :param traceback: the whole of ``error``, for the raw evidence only
    :param retried: its process died and it ended when it was run again, so that nobody knows what happened
    """

    variant: Variant
    seed: int
    observations: tuple[Observation, ...] = ()
    executions: int | None = None
    error: str | None = None
    stale: bool = False
    traceback: str | None = None
    retried: bool = False


@dataclass(frozen=True)
class PairedRun:
    """One experiment, run once under one seed.

    :param quantities: name and value of each, in the unit of the claim that names it, finite
    :param seconds: how long it took on the machine that ran it
    :param error: one line, where the experiment crashed or its process died
    :param traceback: the whole of ``error``, for the raw evidence only
    :param retried: as in `Run`
    """

    experiment: str
    seed: int
    quantities: tuple[tuple[str, float], ...] = ()
    seconds: float = 0.0
    error: str | None = None
    traceback: str | None = None
    retried: bool = False


@dataclass(frozen=True)
class Problem:
    """What a document says of a problem beside that it exists, in our own words; empty where it says nothing.

    :param category: the kind of risk
    :param components: the parts of the system that it touches
    :param scenario: how it comes about, step by step
    :param impact: what it costs
    :param recommendation: what is to be done
    :param priority: its place in the document's own order, P0 first
    :param probability: how likely it is said to be
    :param effort: how much work its fix is said to be
    """

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
    """What a statement puts a figure on, and the rule by which measuring decides; written before it is measured.

    :param quantity: the key of what the experiment returns
    :param unit: in which the quantity and every number here is given
    :param claimed: the ends of what is claimed; one of them infinite where there is one end only, and then the other is
        no part of what is claimed: no change is no improvement
    :param runs: how many paired runs are made, with the seeds 0 to ``runs - 1``
    :param power: the probability of CONFIRMED if the statement is true, as the pilot gives it, in [0.8, 1]
    :param pilot: the runs, made with other seeds, from which ``runs`` and ``power`` were computed, in words
    :param tolerance: a fresh measurement agrees with the committed one if their intervals have a value in common or
        their means differ by at most this; 0 leaves the intervals alone to decide
    :param document_gives: ``interval``, the ends in ``claimed``; ``statement``, of which the ends are our criterion; or
        ``nothing``, where the statement is implied as well
    """

    quantity: str
    unit: str
    claimed: tuple[float, float]
    runs: int
    power: float
    pilot: str
    tolerance: float = 0.0
    document_gives: Gives = "interval"


@dataclass(frozen=True)
class Claim:
    """One statement of a document, with the experiment that tests it.

    :param statement: what is asserted, in our own words
    :param if_true: what would be observed if it were true
    :param documented_status: what the document says has become of it
    :param expected_verdict: written before it is measured; the gate compares
    :param fault: name of the fault that puts the defect back; None where the statement is tested on healthy code
    :param shows: the symptoms that the fault must violate, and the only ones; empty where each symptom of the probe is
        one of this claim, so that any of them will do
    :param against_document: whether CONFIRMED speaks against a document, which recommends what is put back
    :param documented_fix: name of the replacement that applies the document's fix to the faulty code
    :param fix_statement: what that fix does, in our own words
    :param probe: name of the probe that looks for the symptoms; empty where a figure is claimed
    :param modules: dotted names of the modules under test; a change in one makes the evidence stale
    :param seeds: one run of the probe, or one paired run of the experiment, for each
    :param killed_by: ids of the tests of the suite that fail when the fault is planted
    :param cites: the lines of the documents that state it, as `verification.citations` reads them: ``000:44-60``
    :param part_of: id of the problem that this is an effect, an option or an assurance of; empty where it is its own
    :param problem: what the document says of it beside that it exists, or None
    :param experiment: name of the experiment that measures the figure; empty where none is claimed
    :param figure: the figure that is claimed, or None
    """

    id: str
    title: str
    kind: Kind
    area: str
    document: str
    section: str
    statement: str
    if_true: str
    documented_status: str
    expected_verdict: Verdict
    probe: str
    modules: tuple[str, ...]
    seeds: tuple[int, ...]
    fault: str | None = None
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
    problem: Problem | None = None
    experiment: str = ""
    figure: Figure | None = None

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The variants that this claim is measured in; none where an experiment measures a figure."""
        if self.figure is not None:
            return ()
        planted = {"healthy": "", "faulty": self.fault, "documented_fix": self.documented_fix}
        return tuple(variant for variant in VARIANTS if planted[variant] is not None)


@dataclass(frozen=True)
class Aside:
    """Lines of a document that state nothing that could be tested, or nothing beside what other lines state.

    :param cites: as in `Claim`
    """

    cites: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Quotation:
    """Words as a document has them.

    :param cite: the lines in which they stand
    """

    cite: str
    text: str


@dataclass(frozen=True)
class Contradiction:
    """Statements of the documents that cannot all be true.

    :param statement: what they disagree about, in our own words
    :param measured: what this project can say about it
    :param settled_by: ids of the claims whose verdict decides between them
    """

    id: str
    statement: str
    quotes: tuple[Quotation, ...]
    measured: str
    settled_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class SymptomEvidence:
    """One symptom over all runs of a variant.

    :param held_runs: in how many of ``runs`` it was as it should be
    :param before: the text, where it repeats and was the same in every run; else None
    """

    symptom: str
    held_runs: int
    runs: int
    before: str | None
    after: str | None


@dataclass(frozen=True)
class VariantEvidence:
    """One variant over all its runs.

    :param runs: how many ended; those that crashed are in ``errors``
    :param held_runs: in how many every observation held
    :param reached: whether the planted fault was executed in every run; None where nothing was planted
    :param stale: why the fault could not be planted any more, or None
    """

    variant: Variant
    runs: int
    held_runs: int
    reached: bool | None
    symptoms: tuple[SymptomEvidence, ...]
    errors: tuple[str, ...] = ()
    stale: str | None = None


@dataclass(frozen=True)
class FigureEvidence:
    """A figure over all its paired runs, in the unit of the claim and rounded to what repeats.

    :param runs: how many ended; those that crashed are in ``errors``
    :param mean: of the quantity over the runs
    :param low: lower end of the 95 % bootstrap interval of the mean
    :param high: upper end of it
    :param effect_size: Cohen's d_z, the mean over the standard deviation of the runs; None where they are all the
        same to the digits that are kept
    :param claimed: as in the claim
    """

    runs: int
    mean: float
    low: float
    high: float
    effect_size: float | None
    claimed: tuple[float, float]
    errors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """All that is known about one claim; the verdict is computed from it and from nothing else.

    :param experiment_digest: digest of the claim's settings, its probe and its faults, or its experiment
    :param module_digests: (dotted name, digest) of each module under test, with all that it imports of its package
    :param variants: what a probe observed; empty where a figure was measured
    :param shows: as in the claim
    :param figure: what an experiment measured, or None
    """

    claim_id: str
    experiment_digest: str
    module_digests: tuple[tuple[str, str], ...]
    seeds: tuple[int, ...]
    variants: tuple[VariantEvidence, ...]
    shows: tuple[str, ...] = ()
    figure: FigureEvidence | None = None

    def variant(self, name: Variant) -> VariantEvidence | None:
        """The evidence of one variant, or None where the claim was not measured in it."""
        return next((each for each in self.variants if each.variant == name), None)
