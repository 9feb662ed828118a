"""Slow float64 oracle of distributions on fixed atoms, one part of mass and one atom at a time.

Written from the definition of the projection (Bellemare et al. 2017, algorithm 1), not from its closed form.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence


def atoms(v_min: float, v_max: float, count: int) -> list[float]:
    """Evenly spaced locations from ``v_min`` to ``v_max``."""
    return [v_min + (v_max - v_min) * i / (count - 1) for i in range(count)]


def project(probabilities: Sequence[float], locations: Sequence[float], support: Sequence[float]) -> list[float]:
    """Share each part of mass between the atom below and the atom above, so that its place is kept."""
    projected = [0.0] * len(support)
    for mass, location in zip(probabilities, locations, strict=True):
        if location <= support[0]:
            projected[0] += mass
            continue
        if location >= support[-1]:
            projected[-1] += mass
            continue
        above = bisect.bisect_right(support, location)
        gap = support[above] - support[above - 1]
        projected[above] += mass * (location - support[above - 1]) / gap
        projected[above - 1] += mass * (support[above] - location) / gap
    return projected


def mean(probabilities: Sequence[float], support: Sequence[float]) -> float:
    """The expected value."""
    return math.fsum(p * z for p, z in zip(probabilities, support, strict=True))


def softmax(logits: Sequence[float]) -> list[float]:
    """Probabilities in proportion to exp(logit)."""
    highest = max(logits)
    weights = [math.exp(logit - highest) for logit in logits]
    return [weight / math.fsum(weights) for weight in weights]


def cross_entropy(probabilities: Sequence[float], value: float, support: Sequence[float]) -> float:
    """-sum m log p of the projected ``value``; parts of the target without mass do not count."""
    target = project([1.0], [value], support)
    return -math.fsum(m * math.log(p) for m, p in zip(target, probabilities, strict=True) if m > 0.0)


def clip_mean(
    probabilities: Sequence[float], old_mean: float, clip_range: float, support: Sequence[float]
) -> list[float]:
    """Shift every atom by what clipping does to the mean, then project."""
    now = mean(probabilities, support)
    clipped = min(max(now, old_mean - clip_range), old_mean + clip_range)
    return project(probabilities, [z + clipped - now for z in support], support)
