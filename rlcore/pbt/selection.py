"""Who copies whom: ranking, truncation and the binary tournament."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rlcore.pbt.config import PBTConfig
from rlcore.pbt.member import PopulationMember

_ROUNDING = 1e-9
"""What a product such as 100 * 0.29 = 28.999999999999996 may lie below the count that is meant."""


def choose_source(
    member: PopulationMember, members: Sequence[PopulationMember], config: PBTConfig, generator: np.random.Generator
) -> PopulationMember | None:
    """The member that ``member`` is to copy, or None; a better one in every case, so never itself.

    :param members: those that reported a performance
    """
    if config.exploit_method == "truncation":
        return truncation_source(member, members, config, generator)
    return tournament_source(member, members, config, generator)


def truncation_source(
    member: PopulationMember, members: Sequence[PopulationMember], config: PBTConfig, generator: np.random.Generator
) -> PopulationMember | None:
    """If ``member`` is among the worst, one of the best that are better than it, each equally likely."""
    ranked = rank(members, config.metric_mode)
    count = truncation_count(len(ranked), config.truncation_ratio)
    if member.member_id not in [each.member_id for each in ranked[len(ranked) - count :]]:
        return None
    return _draw(eligible_sources(member, ranked[:count], config.metric_mode), generator)


def tournament_source(
    member: PopulationMember, members: Sequence[PopulationMember], config: PBTConfig, generator: np.random.Generator
) -> PopulationMember | None:
    """An opponent, drawn once from all others, if it is better: with b better of n others, P(copied) = b / n."""
    opponent = _draw([each for each in members if each.member_id != member.member_id], generator)
    return None if opponent is None else _draw(eligible_sources(member, [opponent], config.metric_mode), generator)


def rank(members: Sequence[PopulationMember], metric_mode: str) -> list[PopulationMember]:
    """The members from best to worst; equal ones keep their order, and those without a number come last."""
    return sorted(members, key=lambda each: ranking_key(each, metric_mode), reverse=True)


def ranking_key(member: PopulationMember, metric_mode: str) -> tuple[bool, float]:
    """What members are ordered by, larger for better: NaN or nothing is worse than every number, infinity included."""
    performance = member.performance
    if performance is None or math.isnan(performance):
        return False, 0.0
    return True, performance if metric_mode == "max" else -performance


def eligible_sources(
    member: PopulationMember, candidates: Sequence[PopulationMember], metric_mode: str
) -> list[PopulationMember]:
    """The candidates that are strictly better than ``member``; copying an equal one would only lose diversity."""
    own = ranking_key(member, metric_mode)
    return [each for each in candidates if ranking_key(each, metric_mode) > own]


def truncation_count(size: int, ratio: float) -> int:
    """How many of ``size`` members stand at either end: the share, rounded down, and at least one."""
    return max(1, math.floor(size * ratio + _ROUNDING))


def ready_count(size: int, ready_percentage: float) -> int:
    """How many of ``size`` members must have reported: the share, rounded up, and at least two."""
    return max(2, math.ceil(size * ready_percentage - _ROUNDING))


def _draw(candidates: Sequence[PopulationMember], generator: np.random.Generator) -> PopulationMember | None:
    return candidates[int(generator.integers(len(candidates)))] if candidates else None
