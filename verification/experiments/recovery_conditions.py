"""The recovery after an exploit under other conditions than those of `verification.experiments.exploit`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from rlcore import DistributionalPPO
from rlverify import experiment
from verification.experiments.exploit import (
    MEMBER,
    SOURCE,
    UPDATES_AFTER,
    UPDATES_BEFORE,
    settled,
    watched,
    with_statistics_and_without,
)
from verification.experiments.second_environment import in_drift
from verification.experiments.training import after_exploit, saved, trained, update
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


def mean_reward(model: DistributionalPPO) -> float:
    """One more rollout and one more update; the mean reward of a step."""
    update(model)
    return float(model.rollout_buffer.rewards.mean())


def recovery(
    make: Make, seed: int, before: int, after: int, gain: Callable[[DistributionalPPO], float]
) -> Mapping[str, float]:
    """A slow member takes over a fast one, with the source's VGS statistics and with its own.

    :param before: updates before the exploit
    :param after: updates after it
    :param gain: makes an update and says how good the rollout was
    """
    own = 2 * seed + 1
    source, member = trained(make, 2 * seed, before, **SOURCE), trained(make, own, before, **MEMBER)
    transferred, kept = (
        after_exploit(make, saved(member), own, learnt, SOURCE)
        for learnt in with_statistics_and_without(source, member)
    )
    factors = watched(transferred, member)
    areas = [float(np.mean([gain(model) for _ in range(after)])) for model in (transferred, kept)]
    return {
        "efficiency lost": 100.0 * (1.0 - areas[1] / areas[0]),
        "steps until kept statistics fit, within 5 %": settled(factors.kept, factors.transferred, 0.05),
        "steps until kept statistics fit, within 10 %": settled(factors.kept, factors.transferred, 0.1),
        "steps until fresh statistics fit, within 5 %": settled(factors.fresh, factors.transferred, 0.05),
        "steps until fresh statistics fit, within 10 %": settled(factors.fresh, factors.transferred, 0.1),
    }
