"""From runs to evidence: counts of a probe's symptoms, or a figure with its interval.

Learning amplifies the last bit of every sum, and machines differ in it. So the values that are committed are rounded,
and mean, interval and verdict are computed from what is left, when measured and whenever the file is read. The interval
is rounded outwards, so that this rounding can leave a claim undecided, but cannot decide it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from rlverify.project.fingerprint import digest
from rlverify.records.claims import Claim
from rlverify.records.measured import (
    Evidence,
    FigureEvidence,
    Observation,
    PairedRun,
    Run,
    SymptomEvidence,
    Variant,
    VariantEvidence,
)
from rlverify.verdicts.statistics import bootstrap_interval, effect_size


def summarise(claim: Claim, runs: Sequence[Run]) -> Evidence:
    """The evidence that the runs of one claim amount to."""
    by_variant: dict[Variant, list[Run]] = {}
    for run in runs:
        by_variant.setdefault(run.variant, []).append(run)
    seeds = tuple(dict.fromkeys(run.seed for run in runs))
    variants = tuple(_summarise_variant(variant, found) for variant, found in by_variant.items())
    return Evidence(claim.id, seeds, variants, claim.shows)


def _summarise_variant(variant: Variant, runs: Sequence[Run]) -> VariantEvidence:
    ended = [run for run in runs if run.error is None]
    planted = [run.executions for run in ended if run.executions is not None]
    observed: dict[str, list[Observation]] = {}
    for run in ended:
        for observation in run.observations:
            observed.setdefault(observation.symptom, []).append(observation)
    return VariantEvidence(
        variant,
        runs=len(ended),
        held_runs=sum(all(observation.holds for observation in run.observations) for run in ended),
        reached=all(count > 0 for count in planted) if planted else None,
        symptoms=tuple(_summarise_symptom(symptom, found) for symptom, found in observed.items()),
        errors=tuple(f"seed {run.seed}: {run.error}" for run in runs if run.error is not None and not run.stale),
        stale=next((run.error for run in runs if run.stale), None),
        hint=next((run.hint for run in ended if run.hint is not None), None),
    )


def _summarise_symptom(symptom: str, found: Sequence[Observation]) -> SymptomEvidence:
    repeats = all(each.repeats for each in found)
    before, after = {each.before for each in found}, {each.roughly or each.after for each in found}
    return SymptomEvidence(
        symptom,
        held_runs=sum(each.holds for each in found),
        runs=len(found),
        before=before.pop() if repeats and len(before) == 1 else None,
        after=after.pop() if repeats and len(after) == 1 else None,
    )


SIGNIFICANT_DIGITS: Final = 3
"""Of the largest of mean and interval."""
VALUE_DIGITS: Final = 5
"""Of the largest of the values."""
DECIMALS: Final = 6
"""At most; what two equal arms leave behind by rounding comes to 0. Choose the unit of a quantity accordingly."""
EFFECT_DIGITS: Final = 2
AGREEMENT: Final = 0.01
"""Part of the largest value by which a run may differ, on other machines, if its figure repeats."""
SLACK: Final = 1e-6
"""Part of the last digit by which an end may lie outside it and not be moved to the next."""


def criterion_digest(claim: Claim) -> str:
    """Digest of what the catalogue says of a figure and its verdict depends on."""
    assert claim.figure is not None
    figure = claim.figure
    words = [claim.experiment, figure.quantity, str(claim.seeds), str(claim.of_fix), str(figure.repeats)]
    return digest([*words, *(repr(float(number)) for number in (*figure.claimed, figure.tolerance))])


def summarise_figure(claim: Claim, runs: Sequence[PairedRun]) -> Evidence:
    """The evidence that the paired runs of a claim's experiment amount to; runs of other seeds do not count."""
    assert claim.figure is not None
    values, errors = [], []
    for run in sorted((run for run in runs if run.seed in claim.seeds), key=lambda run: run.seed):
        value = run.value_of(claim.figure.quantity)
        if value is not None:
            values.append(value)
        else:
            errors.append(f"seed {run.seed}: {run.why_without(claim.figure.quantity)}")
    figure = measured_figure(values, claim.figure.claimed, tuple(errors))
    return Evidence(claim.id, claim.seeds, (), figure=replace(figure, criterion=criterion_digest(claim)))


def measured_figure(
    values: Sequence[float], claimed: tuple[float, float], errors: tuple[str, ...] = ()
) -> FigureEvidence:
    """What the values of the runs amount to, once they are rounded."""
    if len(values) < 2:
        return FigureEvidence((), 0.0, 0.0, 0.0, None, claimed, errors or ("too few runs for an interval",))
    kept = rounded_values(values)
    mean, low, high = rounded(sum(kept) / len(kept), *bootstrap_interval(kept))
    effect = effect_size(kept)
    told = float(f"{effect:.{EFFECT_DIGITS}g}") if effect is not None else None
    return FigureEvidence(kept, mean, low, high, told, claimed, errors)


def rounded_values(values: Sequence[float]) -> tuple[float, ...]:
    """The values to five digits of the largest, and at most six decimals."""
    decimals = _decimals(values)
    return tuple(round(value, decimals) + 0.0 for value in values)  # + 0.0 makes -0.0 a zero


def _decimals(values: Sequence[float]) -> int:
    largest = max(map(abs, values))
    return min(DECIMALS, VALUE_DIGITS - 1 - math.floor(math.log10(largest))) if largest > 0.0 else DECIMALS


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


def compare_figures(
    committed: FigureEvidence, fresh: FigureEvidence, tolerance: float, *, repeats: bool = False
) -> list[str]:
    """Where a fresh measurement differs from what is committed by more than another machine explains, as sentences."""
    differences = []
    if fresh.runs != committed.runs:
        differences.append(f"{fresh.runs} runs instead of {committed.runs}")
    if fresh.claimed != committed.claimed:
        differences.append(f"{span_in_words(*fresh.claimed)} is claimed instead of {span_in_words(*committed.claimed)}")
    meet = fresh.low <= committed.high and committed.low <= fresh.high
    if not meet and abs(fresh.mean - committed.mean) > tolerance:
        now, then = (f"{each.mean:g} ({span_in_words(each.low, each.high)})" for each in (fresh, committed))
        differences.append(f"a mean of {now} instead of {then}")
    if repeats and fresh.runs == committed.runs:
        differences += [
            run_difference(committed, seed, value)
            for seed, value in enumerate(fresh.values)
            if not run_agrees(committed, seed, value, tolerance)
        ]
    return differences


def run_agrees(committed: FigureEvidence, seed: int, value: float, tolerance: float) -> bool:
    """Whether a run gives the committed value of its seed, up to what another machine explains."""
    margin = max(tolerance, 10.0**-DECIMALS, AGREEMENT * max(map(abs, committed.values)))
    return abs(value - committed.values[seed]) <= margin


def is_committed_value(committed: FigureEvidence, seed: int, value: float) -> bool:
    """Whether a run gives the committed value of its seed, to all digits that are kept."""
    return round(value, _decimals(committed.values)) == committed.values[seed]


def run_difference(committed: FigureEvidence, seed: int, value: float, unit: str = "") -> str:
    """A run that gives another value than the committed one of its seed, as a sentence."""
    return f"seed {seed} gives {value:.5g}{unit and ' '}{unit}, committed {committed.values[seed]:.5g}"


def span_in_words(low: float, high: float) -> str:
    """An interval as ``low to high``."""
    return f"{low:g} to {high:g}"
