"""Figures of a population's performance."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rlcore.pbt.member import PopulationMember


def performance_statistics(members: Sequence[PopulationMember]) -> dict[str, float]:
    """Mean, population standard deviation, smallest and largest of the finite performances; NaN where there is none."""
    numbers = [each.performance for each in members if each.performance is not None]
    finite = np.array([number for number in numbers if math.isfinite(number)] or [math.nan])
    return {
        "pbt/mean_performance": float(finite.mean()),
        "pbt/std_performance": float(finite.std()),
        "pbt/min_performance": float(finite.min()),
        "pbt/max_performance": float(finite.max()),
    }
