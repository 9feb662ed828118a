"""From counts to a decision: held, violated, or not separated by the evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Outcome: TypeAlias = Literal["held", "violated", "undecided"]

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Decision:
    """What a number of runs says about a rule.

    :param low: lower bound of the share of runs that hold, at 95 % confidence, in [0, 1]
    :param high: upper bound, in [0, 1]
    """

    outcome: Outcome
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
