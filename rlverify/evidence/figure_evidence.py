"""Evidence of figures: from paired runs to a mean with its interval, and to the object that a file of evidence holds.

Learning amplifies the last bit of every sum, and machines differ in it. So what is committed is rounded to what can be
expected to repeat, the interval outwards, and the verdict is computed from what is left: rounding can leave a claim
undecided, but cannot decide it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from rlverify.records.claims import Claim, Verdict
from rlverify.records.measured import Evidence, FigureEvidence
from rlverify.records.runs import PairedRun
from rlverify.verdicts.statistics import bootstrap_interval, effect_size

SIGNIFICANT_DIGITS: Final = 3
"""Of the largest of mean and interval."""
DECIMALS: Final = 6
"""At most; what two equal arms leave behind by rounding comes to 0. Choose the unit of a quantity accordingly."""
EFFECT_DIGITS: Final = 2
SLACK: Final = 1e-6
"""Part of the last digit by which an end may lie outside it and not be moved to the next."""

Finite = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(strict=True, ge=0)]


class MeasuredFigureEntry(BaseModel):
    """The ``figure`` object of a file of evidence."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    runs: Annotated[int, Field(strict=True, ge=2)]
    mean: Finite
    low: Finite
    high: Finite
    effect_size: Finite | None
    claimed: tuple[float, float]

    @field_validator("claimed", mode="before")
    @classmethod
    def _words_are_infinite(cls, value: Any) -> Any:
        words = {"inf": math.inf, "-inf": -math.inf}
        return [words.get(end, end) if isinstance(end, str) else end for end in value] if type(value) is list else value


class FigureFile(BaseModel):
    """A file of evidence of a figure."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1]
    claim_id: str
    experiment_digest: str
    module_digests: dict[str, str]
    figure: MeasuredFigureEntry
    verdict: Verdict


def summarise_figure(
    claim: Claim, runs: Sequence[PairedRun], experiment: str, modules: tuple[tuple[str, str], ...]
) -> Evidence:
    """The evidence that the paired runs of a claim's experiment amount to; runs of other seeds do not count.

    :param runs: of the claim's experiment, with all of its seeds
    :param experiment: digest of the experiment
    :param modules: (dotted name, digest) of each module under test
    """
    assert claim.figure is not None
    values, errors = [], []
    for run in sorted((run for run in runs if run.seed in claim.seeds), key=lambda run: run.seed):
        quantities = dict(run.quantities)
        if run.error is None and claim.figure.quantity in quantities:
            values.append(quantities[claim.figure.quantity])
        else:
            missing = f"gives no quantity {claim.figure.quantity!r}, but {', '.join(map(repr, quantities))}"
            errors.append(f"seed {run.seed}: {run.error or missing}")
    figure = _measured(values, claim.figure.claimed, tuple(errors))
    return Evidence(claim.id, experiment, modules, claim.seeds, (), figure=figure)


def _measured(values: Sequence[float], claimed: tuple[float, float], errors: tuple[str, ...]) -> FigureEvidence:
    if len(values) < 2:
        return FigureEvidence(0, 0.0, 0.0, 0.0, None, claimed, errors or ("too few runs for an interval",))
    mean, low, high = rounded(sum(values) / len(values), *bootstrap_interval(values))
    effect = effect_size(values) if low < high else None
    told = float(f"{effect:.{EFFECT_DIGITS}g}") if effect is not None else None
    return FigureEvidence(len(values), mean, low, high, told, claimed, errors)


def rounded(mean: float, low: float, high: float) -> tuple[float, float, float]:
    """The mean to the nearest and the interval outwards, to three digits of the largest and at most six decimals."""
    largest = max(abs(mean), abs(low), abs(high))
    decimals = DECIMALS
    if largest > 0.0:
        decimals = min(DECIMALS, SIGNIFICANT_DIGITS - 1 - math.floor(math.log10(largest)))
    units = 10.0**decimals
    whole = (round(mean * units), math.floor(low * units + SLACK), math.ceil(high * units - SLACK))
    mean, low, high = (round(number / units, decimals) for number in whole)
    return mean, low, high


def as_figure_object(figure: FigureEvidence) -> dict[str, Any]:
    """What a file holds of a figure."""
    content = asdict(figure)
    del content["errors"]
    return content


def figure_of(content: FigureFile) -> Evidence:
    """The evidence that a file holds."""
    entry = content.figure
    figure = FigureEvidence(entry.runs, entry.mean, entry.low, entry.high, entry.effect_size, entry.claimed)
    modules = tuple(sorted(content.module_digests.items()))
    seeds = tuple(range(entry.runs))
    return Evidence(content.claim_id, content.experiment_digest, modules, seeds, (), figure=figure)


def impossible_in_figure(figure: FigureEvidence) -> Iterator[str]:
    """What no measurement can have given."""
    if not figure.low <= figure.mean <= figure.high:
        yield f"the mean {figure.mean:g} lies outside its interval, {figure.low:g} to {figure.high:g}"
    if not figure.claimed[0] < figure.claimed[1]:
        yield f"claims the empty interval from {figure.claimed[0]:g} to {figure.claimed[1]:g}"
    effect = figure.effect_size
    if effect is not None and effect * figure.mean < 0:
        yield f"an effect size of {effect:g} with a mean of {figure.mean:g}"
    if effect is not None and figure.low == figure.high:
        yield f"an effect size of {effect:g} of runs that are all {figure.mean:g}"
    if effect:
        # No mean of resampled values lies farther from the mean than one value can: (n - 1) / sqrt(n) times their sd.
        farthest = abs(figure.mean / effect) * (figure.runs - 1) / math.sqrt(figure.runs)
        width = max(figure.mean - figure.low, figure.high - figure.mean)
        if width > 1.1 * farthest + 2 * _last_digit(figure):
            yield f"the interval {figure.low:g} to {figure.high:g} is wider than an effect size of {effect:g} allows"


def _last_digit(figure: FigureEvidence) -> float:
    largest = max(abs(figure.mean), abs(figure.low), abs(figure.high), 10.0**-DECIMALS)
    return 10.0 ** (math.floor(math.log10(largest)) - SIGNIFICANT_DIGITS + 1)


def compare_figures(committed: FigureEvidence, fresh: FigureEvidence, tolerance: float) -> list[str]:
    """Where a fresh measurement differs from what is committed by more than another machine explains, as sentences.

    :param tolerance: as in `rlverify.records.claims.Figure`
    """
    differences = []
    if fresh.runs != committed.runs:
        differences.append(f"{fresh.runs} runs instead of {committed.runs}")
    if fresh.claimed != committed.claimed:
        differences.append(f"{span_in_words(*fresh.claimed)} is claimed instead of {span_in_words(*committed.claimed)}")
    meet = fresh.low <= committed.high and committed.low <= fresh.high
    if not meet and abs(fresh.mean - committed.mean) > tolerance:
        now, then = (f"{each.mean:g} ({span_in_words(each.low, each.high)})" for each in (fresh, committed))
        differences.append(f"a mean of {now} instead of {then}")
    return differences


def span_in_words(low: float, high: float) -> str:
    """An interval as ``low to high``."""
    return f"{low:g} to {high:g}"
