"""From runs to a decision: shares, means with their intervals, and how many runs a figure needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ShareOutcome: TypeAlias = Literal["held", "violated", "undecided"]
IntervalPlace: TypeAlias = Literal["within", "apart", "across"]
Interval: TypeAlias = tuple[float, float]

CONFIDENCE = 0.95
RESAMPLES = 9_999
BOOTSTRAP_SEED = 20_190_523
ROUNDING = 1e-9
"""Values that differ by less, relative to the largest of them, are the same but for rounding."""


@dataclass(frozen=True)
class Decision:
    """What a number of runs says about a rule.

    :param low: lower bound of the share of runs that hold, at 95 % confidence, in [0, 1]
    :param high: upper bound, in [0, 1]
    """

    outcome: ShareOutcome
    low: float
    high: float


def binomial_interval(successes: int, runs: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Exact two-sided interval of a share (Clopper and Pearson, 1934).

    :raises ValueError: unless 0 <= successes <= runs and runs > 0
    """
    from scipy.stats import binomtest  # imported here because it is slow and few commands need it

    interval = binomtest(successes, runs).proportion_ci(confidence, method="exact")
    return float(interval.low), float(interval.high)


def decide(successes: int, runs: int) -> Decision:
    """Judge how many of the runs hold, of what is deterministic: held if every run holds, violated if none does.

    :raises ValueError: unless 0 <= successes <= runs and runs > 0
    """
    if not 0 <= successes <= runs or runs == 0:
        raise ValueError(f"{successes} of {runs} runs is no share; there must be at least one run")
    if successes == runs:
        return Decision("held", 1.0, 1.0)
    if successes == 0:
        return Decision("violated", 0.0, 0.0)
    return Decision("undecided", *binomial_interval(successes, runs))


def bootstrap_interval(values: Sequence[float], resamples: int = RESAMPLES) -> Interval:
    """95 % interval of the mean, by the bias-corrected and accelerated bootstrap (Efron, 1987); the same each time.

    :param values: one per run, finite; where all are the same, the interval is that value
    :raises ValueError: for fewer than two values, or one that is not finite
    """
    import numpy as np  # here and below because these are slow to import and few commands need them

    if len(values) < 2 or not all(map(math.isfinite, values)):
        raise ValueError(f"an interval needs two or more finite values, not {list(values)}")
    low, high = bootstrap_intervals(np.asarray([values], dtype=np.float64), resamples)
    return float(low[0]), float(high[0])


def bootstrap_intervals(
    samples: NDArray[np.float64], resamples: int = RESAMPLES
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """`bootstrap_interval` of each row.

    :param samples: (rows, runs)
    :returns: lower and upper ends, (rows,) each
    """
    import numpy as np
    from scipy.stats import bootstrap

    low = samples.mean(axis=1)
    high = low.copy()
    varied = np.array([not are_the_same(row) for row in samples])
    if varied.any():
        batch = max(1, 10_000_000 // samples[varied].size)  # keeps what is resampled at once below 100 MB
        found = bootstrap(
            (samples[varied],),
            np.mean,
            axis=1,
            n_resamples=resamples,
            batch=batch,
            confidence_level=CONFIDENCE,
            rng=np.random.default_rng(BOOTSTRAP_SEED),
        ).confidence_interval
        low[varied], high[varied] = found.low, found.high
    return low, high


def effect_size(values: Sequence[float]) -> float | None:
    """Cohen's d_z: the mean of paired differences over their standard deviation; None where all are the same.

    :raises ValueError: for fewer than two values
    """
    import numpy as np

    if len(values) < 2:
        raise ValueError(f"{len(values)} values have no standard deviation; there must be at least two")
    found = np.asarray(values, dtype=np.float64)
    return None if are_the_same(found) else float(found.mean() / found.std(ddof=1))


def are_the_same(values: NDArray[np.float64]) -> bool:
    """Whether values differ by nothing but rounding."""
    return bool(values.max() - values.min() <= ROUNDING * abs(values).max())


def place_of(interval: Interval, claimed: Interval) -> IntervalPlace:
    """Whether an interval lies within what is claimed, apart from it, or across one of its ends.

    Both ends of ``claimed`` belong to it, unless one of them is infinite: then the other does not, because "better"
    claims more than no change.
    """
    (low, high), (least, most) = interval, claimed
    if math.isinf(least) or math.isinf(most):
        within, apart = least < low and high < most, high <= least or most <= low
    else:
        within, apart = least <= low and high <= most, high < least or most < low
    return "within" if within else "apart" if apart else "across"


WANTED = 0.8
TRIALS = 400
"""Experiments that are drawn from the pilot; the share that is confirmed is then off by 0.02 or less, mostly."""
PILOT_RESAMPLES = 999
"""For the interval of each of them; fewer than for a measurement, because the trials average."""
SEED = 20_190_523
FEWEST, MOST = 5, 1_000


@dataclass(frozen=True)
class MeasurementPlan:
    """What a pilot says about a measurement.

    :param power: of the number of runs that the catalogue asks for
    :param least_runs: the fewest that reach 80 %; None where even `MOST` do not
    """

    mean: float
    sd: float
    power: float
    least_runs: int | None


def plan_measurement(pilot: Sequence[float], claimed: Interval, runs: int) -> MeasurementPlan:
    """What a pilot says about the measurement of a figure.

    :param pilot: one value per run, from seeds that the measurement does not use
    :param claimed: the ends of what is claimed, one of them possibly infinite
    :param runs: how many runs the catalogue asks for
    :raises ValueError: for a pilot of fewer than two runs
    """
    if len(pilot) < 2:
        raise ValueError(f"a pilot of {len(pilot)} runs has no spread to plan with; make at least two")
    return MeasurementPlan(fmean(pilot), stdev(pilot), power(pilot, claimed, runs), least_runs(pilot, claimed))


def claimed_effect(claimed: Interval, sd: float) -> float:
    """The mean at which power is computed: the middle of what is claimed, or one sd inside its only end."""
    low, high = claimed
    if math.isinf(high):
        return low + sd
    return high - sd if math.isinf(low) else (low + high) / 2


def power(pilot: Sequence[float], claimed: Interval, runs: int) -> float:
    """The probability that ``runs`` runs confirm the claim if it is true, in [0, 1]; the same each time.

    Experiments are drawn from the pilot's values, moved so that their mean is the claimed effect, and spread so that
    their variance is the one that the pilot estimates and not that of its values alone.
    """
    import numpy as np  # here because it is slow to import and few commands need it

    values = np.asarray(pilot, dtype=np.float64)
    if are_the_same(values):  # then so is every mean of them, and any that is claimed is confirmed
        return 1.0
    spread = math.sqrt(len(values) / (len(values) - 1))
    centred = (values - values.mean()) * spread + claimed_effect(claimed, float(values.std(ddof=1)))
    drawn = np.random.default_rng(SEED).choice(centred, (TRIALS, runs))
    low, high = bootstrap_intervals(drawn, PILOT_RESAMPLES)
    places = [place_of((float(a), float(b)), claimed) for a, b in zip(low, high, strict=True)]
    return places.count("within") / TRIALS


def least_runs(pilot: Sequence[float], claimed: Interval, wanted: float = WANTED) -> int | None:
    """The fewest runs whose power is at least ``wanted``; None where even `MOST` have less."""
    low, high = FEWEST - 1, FEWEST
    while power(pilot, claimed, high) < wanted:
        if high == MOST:
            return None
        low, high = high, min(2 * high, MOST)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(pilot, claimed, middle) >= wanted else (middle, high)
    return high
