"""What was observed in one run, and what was measured for a claim over all its runs; frozen records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

Variant: TypeAlias = Literal["healthy", "faulty", "documented_fix"]


VARIANTS: tuple[Variant, ...] = get_args(Variant)


@dataclass(frozen=True)
class Observation:
    """One symptom, measured once.

    :param symptom: what was looked at; the same words in every variant and seed
    :param before: the printed value that is expected: that before the event under test
    :param after: the printed value that is observed: that after it
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
            raise TypeError(
                f"an observation takes three texts and a bool, not {texts} and {self.holds!r}; "
                "write str(...) and bool(...)"
            )


@dataclass(frozen=True)
class Run:
    """One probe, run once under one variant and one seed.

    :param executions: how often the planted fault ran; 0 where production code runs other code, None where nothing was
        planted
    :param hint: why production code does not run the planted fault, and what to target instead
    """

    variant: Variant
    seed: int
    observations: tuple[Observation, ...] = ()
    executions: int | None = None
    error: str | None = None
    stale: bool = False
    traceback: str | None = None
    seconds: float = field(default=0.0, compare=False)
    hint: str | None = None


@dataclass(frozen=True)
class PairedRun:
    """One experiment, run once under one seed.

    :param quantities: name and value of each, in the unit of the claim that names it, finite
    """

    experiment: str
    seed: int
    quantities: tuple[tuple[str, float], ...] = ()
    seconds: float = 0.0
    error: str | None = None
    traceback: str | None = None

    def value_of(self, quantity: str) -> float | None:
        """The value of one quantity, or None if the run crashed or does not give it."""
        return dict(self.quantities).get(quantity) if self.error is None else None

    def why_without(self, quantity: str) -> str:
        """Why there is no value of a quantity."""
        given = ", ".join(repr(name) for name, _ in self.quantities)
        return self.error or f"gives no quantity {quantity!r}, but {given}"


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
    """

    variant: Variant
    runs: int
    held_runs: int
    reached: bool | None
    symptoms: tuple[SymptomEvidence, ...]
    errors: tuple[str, ...] = ()
    stale: str | None = None
    hint: str | None = None


@dataclass(frozen=True)
class FigureEvidence:
    """A figure over all its paired runs, in the unit of the claim and rounded to what repeats.

    :param values: the quantity in each run that ended, in the order of the seeds and rounded to what repeats; those
        that crashed are in ``errors``
    :param effect_size: Cohen's d_z, the mean over the standard deviation of the runs; None where they are all the
        same to the digits that are kept
    :param criterion: digest of the criterion by which it was judged, as `criterion_digest` gives it
    """

    values: tuple[float, ...]
    mean: float
    low: float
    high: float
    effect_size: float | None
    claimed: tuple[float, float]
    errors: tuple[str, ...] = ()
    criterion: str = ""

    @property
    def runs(self) -> int:
        """How many runs ended."""
        return len(self.values)


@dataclass(frozen=True)
class Evidence:
    """All that is known about one claim; the verdict is computed from it and from nothing else."""

    claim_id: str
    seeds: tuple[int, ...]
    variants: tuple[VariantEvidence, ...]
    shows: tuple[str, ...] = ()
    figure: FigureEvidence | None = None

    def variant(self, name: Variant) -> VariantEvidence | None:
        """The evidence of one variant, or None where the claim was not measured in it."""
        return next((each for each in self.variants if each.variant == name), None)
