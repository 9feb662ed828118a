"""What was measured for a claim over all its runs; frozen records. The verdict is computed from them."""

from __future__ import annotations

from dataclasses import dataclass

from rlverify.records.runs import Variant


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
    :param hint: as in `Run`, of the first run that has one
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

    All but the values is computed from them.

    :param values: the quantity in each run that ended, in the order of the seeds and rounded to what repeats; those
        that crashed are in ``errors``
    :param mean: of the values
    :param low: lower end of the 95 % bootstrap interval of the mean
    :param high: upper end of it
    :param effect_size: Cohen's d_z, the mean over the standard deviation of the runs; None where they are all the
        same to the digits that are kept
    :param claimed: as in the claim
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
    """All that is known about one claim; the verdict is computed from it and from nothing else.

    :param variants: what a probe observed; empty where a figure was measured
    :param shows: as in the claim
    :param figure: what an experiment measured, or None
    """

    claim_id: str
    seeds: tuple[int, ...]
    variants: tuple[VariantEvidence, ...]
    shows: tuple[str, ...] = ()
    figure: FigureEvidence | None = None

    def variant(self, name: Variant) -> VariantEvidence | None:
        """The evidence of one variant, or None where the claim was not measured in it."""
        return next((each for each in self.variants if each.variant == name), None)
