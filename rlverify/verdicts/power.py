"""How many paired runs a figure needs: the probability that a true statement is confirmed, from the runs of a pilot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from rlverify.verdicts.statistics import Interval, are_the_same, bootstrap_intervals, place_of

WANTED = 0.8
TRIALS = 400
"""Experiments that are drawn from the pilot; the share that is confirmed is then off by 0.02 or less, mostly."""
RESAMPLES = 999
"""For the interval of each of them; fewer than for a measurement, because the trials average."""
SEED = 20_190_523
FEWEST, MOST = 5, 1_000


@dataclass(frozen=True)
class MeasurementPlan:
    """What a pilot says about a measurement.

    :param mean: of the pilot's values
    :param sd: their standard deviation
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
    low, high = bootstrap_intervals(drawn, RESAMPLES)
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
