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


def decide(successes: int, runs: int, rule: Literal["every"] | float = "every") -> Decision:
    """Judge how many of the runs hold.

    :param rule: ``"every"`` for what is deterministic: held if every run holds, violated if none does. A number is the
        share that has to hold: held if the whole interval lies at or above it, violated if all of it lies below.
    :raises ValueError: unless 0 <= successes <= runs, runs > 0 and the share lies in (0, 1]
    """
    if not 0 <= successes <= runs or runs == 0:
        raise ValueError(f"{successes} of {runs} runs is no share; there must be at least one run")
    if rule == "every":
        low, high = (
            (1.0, 1.0) if successes == runs else (0.0, 0.0) if successes == 0 else binomial_interval(successes, runs)
        )
        outcome: Outcome = "held" if low == 1.0 else "violated" if high == 0.0 else "undecided"
        return Decision(outcome, low, high)
    if not 0 < rule <= 1:
        raise ValueError(f"the share that has to hold is {rule}; it must lie above 0 and not above 1")
    low, high = binomial_interval(successes, runs)
    return Decision("held" if low >= rule else "violated" if high < rule else "undecided", low, high)
