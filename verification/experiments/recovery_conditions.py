"""The recovery after an exploit under other conditions than those of `verification.experiments.exploit`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rlcore import DistributionalPPO
from rlverify import experiment
from verification.experiments.exploit import UPDATES_AFTER, UPDATES_BEFORE, adaptation, recovery
from verification.experiments.second_environment import in_drift
from verification.experiments.training import update
from verification.probes.make import Make

EARLY: Final = 7
"""Updates before an early exploit: 112 optimizer steps, just past the warm-up of 100."""


@experiment("recovery-after-exploit-early")
def early(make: Make, seed: int) -> Mapping[str, float]:
    """About half as long before the exploit."""
    return recovery(make, seed, EARLY, UPDATES_AFTER, update)


@experiment("recovery-after-exploit-double")
def double(make: Make, seed: int) -> Mapping[str, float]:
    """Twice as long before the exploit and after it."""
    return recovery(make, seed, 2 * UPDATES_BEFORE, 2 * UPDATES_AFTER, update)


@experiment("recovery-after-exploit-drift")
def in_the_second_environment(make: Make, seed: int) -> Mapping[str, float]:
    """In Drift, where the return is the reward of a step."""
    return recovery(in_drift(make), seed, UPDATES_BEFORE, UPDATES_AFTER, mean_reward)


@experiment("statistics-after-exploit-early")
def statistics_early(make: Make, seed: int) -> Mapping[str, float]:
    """About half as long before the exploit."""
    return adaptation(make, seed, EARLY)


@experiment("statistics-after-exploit-double")
def statistics_double(make: Make, seed: int) -> Mapping[str, float]:
    """Twice as long before the exploit."""
    return adaptation(make, seed, 2 * UPDATES_BEFORE)


@experiment("statistics-after-exploit-drift")
def statistics_in_the_second_environment(make: Make, seed: int) -> Mapping[str, float]:
    """In Drift."""
    return adaptation(in_drift(make), seed, UPDATES_BEFORE)


def mean_reward(model: DistributionalPPO) -> float:
    """One more rollout and one more update; the mean reward of a step."""
    update(model)
    return float(model.rollout_buffer.rewards.mean())
