"""The members of a population, how they rank, and who copies whom."""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from typing import Annotated, Any, TypeVar

import numpy as np
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from rlcore.pbt.hyperparams import Hyperparams, HyperparamValue, PBTConfig
from rlcore.types import StateDict

_ROUNDING = 1e-9
"""How far below a whole number a product may be and count as it, such as 100 * 0.29 = 28.999999999999996."""

Natural = Annotated[int, Field(strict=True, ge=0)]

Item = TypeVar("Item")


@dataclass(config=ConfigDict(extra="forbid"))
class PopulationMember:
    """What is known of one member; it holds plain Python only.

    :param member_id: its number in the population, from 0
    :param hyperparams: values by name, which train it now
    :param performance: its last score; None before the first, NaN if it diverged
    :param step: at which the score was reported
    :param checkpoint_path: file of its last saved parameters, or None
    :param history: one ``{"step", "performance", "hyperparams"}`` a report, oldest first
    :param checkpoint_hyperparams: those under which what is in the file was trained; None for ``hyperparams``
    :param saved_steps: steps of which it still has a file, in the order of writing
    :param copied_from: the member that it copied when it was last asked to exploit, or None if it copied nothing
    """

    member_id: Natural
    hyperparams: Hyperparams
    performance: Annotated[float, Field(strict=True)] | None = None
    step: Natural = 0
    checkpoint_path: str | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    checkpoint_hyperparams: Hyperparams | None = None
    saved_steps: list[Natural] = field(default_factory=list)
    copied_from: Natural | None = None

    def record_step(self, step: int, performance: float, hyperparams: Mapping[str, HyperparamValue]) -> None:
        """Take a score, reached under ``hyperparams``, as the present one and add it to the history."""
        self.step = step
        self.performance = performance
        self.history.append({"step": step, "performance": performance, "hyperparams": dict(hyperparams)})

    def state_dict(self) -> StateDict:
        """The member as plain Python that shares nothing with it."""
        return asdict(self)  # type: ignore[return-value]  # dict is invariant in its keys


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


@dataclasses.dataclass(frozen=True)
class Ranking:
    """The members that have reported, ranked once; it holds until one of them reports again.

    :param ready: them, in the order of their numbers
    :param best_first: them, from best to worst; equal ones in the order of their numbers
    :param places: position in ``best_first`` by member id, 0 for the best
    """

    ready: tuple[PopulationMember, ...]
    best_first: tuple[PopulationMember, ...]
    places: Mapping[int, int]


def ranking_of(ready: Sequence[PopulationMember], metric_mode: str) -> Ranking:
    """Rank members.

    :param ready: members that have reported, in the order of their numbers
    """
    ranked = rank(ready, metric_mode)
    return Ranking(tuple(ready), tuple(ranked), {each.member_id: place for place, each in enumerate(ranked)})


def choose_source(
    member: PopulationMember, ranking: Ranking, config: PBTConfig, generator: np.random.Generator
) -> PopulationMember | None:
    """The member that ``member`` is to copy, or None; a better one in every case, so never itself.

    :param member: one of those that the ranking holds
    """
    if config.exploit_method == "truncation":
        return truncation_source(member, ranking, config, generator)
    return tournament_source(member, ranking.ready, config, generator)


def truncation_source(
    member: PopulationMember, ranking: Ranking, config: PBTConfig, generator: np.random.Generator
) -> PopulationMember | None:
    """If ``member`` is among the worst, one of the best that are better than it, each equally likely."""
    size = len(ranking.best_first)
    count = truncation_count(size, config.truncation_ratio)
    if ranking.places[member.member_id] < size - count:
        return None
    return _draw(eligible_sources(member, ranking.best_first[:count], config.metric_mode), generator)


def tournament_source(
    member: PopulationMember, members: Sequence[PopulationMember], config: PBTConfig, generator: np.random.Generator
) -> PopulationMember | None:
    """An opponent, drawn once from all others, if it is better: with b better of n others, P(copied) = b / n.

    :param members: ``member`` and the others, in the order of their numbers
    """
    own = bisect_left(members, member.member_id, key=lambda each: each.member_id)
    drawn = _draw(range(len(members) - 1), generator)
    if drawn is None:
        return None
    opponent = members[drawn if drawn < own else drawn + 1]
    return _draw(eligible_sources(member, [opponent], config.metric_mode), generator)


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
) -> Sequence[PopulationMember]:
    """The candidates that are strictly better than ``member``; copying an equal one would only lose diversity.

    :param candidates: from best to worst
    """
    own = ranking_key(member, metric_mode)
    return candidates[: bisect_left(candidates, True, key=lambda each: not ranking_key(each, metric_mode) > own)]


def truncation_count(size: int, ratio: float) -> int:
    """How many of ``size`` members stand at either end: the share, rounded down, and at least one."""
    return max(1, math.floor(size * ratio + _ROUNDING))


def ready_count(size: int, ready_percentage: float) -> int:
    """How many of ``size`` members must have reported: the share, rounded up, and at least two."""
    return max(2, math.ceil(size * ready_percentage - _ROUNDING))


def _draw(candidates: Sequence[Item], generator: np.random.Generator) -> Item | None:
    return candidates[int(generator.integers(len(candidates)))] if candidates else None
