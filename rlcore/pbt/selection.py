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
"""A product that is below a whole number by less counts as that number, such as 100 * 0.29 = 28.999999999999996."""

Natural = Annotated[int, Field(strict=True, ge=0)]

Item = TypeVar("Item")


@dataclass(config=ConfigDict(extra="forbid"))
class PopulationMember:
    """One member, in plain Python.

    :param member_id: its number in the population, from 0
    :param hyperparams: values by name, which train it now
    :param performance: its last score; None before the first, NaN if it diverged
    :param step: of the last report
    :param checkpoint_path: file of its last saved parameters, or None
    :param history: one ``{"step", "performance", "hyperparams"}`` a report, oldest first
    :param checkpoint_hyperparams: those that trained the parameters in the file; None for ``hyperparams``
    :param saved_steps: steps of its files, in the order of writing
    :param copied_from: the member that it copied at its last exploit, or None if it copied none
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
        """Record a score that was reached under ``hyperparams``."""
        self.step = step
        self.performance = performance
        self.history.append({"step": step, "performance": performance, "hyperparams": dict(hyperparams)})

    def state_dict(self) -> StateDict:
        """Return the member as plain Python that shares nothing with it."""
        return asdict(self)  # type: ignore[return-value]  # dict is invariant in its keys


def performance_statistics(members: Sequence[PopulationMember]) -> dict[str, float]:
    """Return mean, population standard deviation, smallest and largest finite performance; NaN if there is none."""
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

    :param ready: the members, in the order of their numbers
    :param best_first: the members, from best to worst; equal ones in the order of their numbers
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
    """Draw the member that ``member`` copies, or None; it is better in every case, so never itself.

    :param member: one of those that the ranking holds
    """
    if config.exploit_method == "truncation":
        return truncation_source(member, ranking, config, generator)
    return tournament_source(member, ranking.ready, config, generator)


def truncation_source(
    member: PopulationMember, ranking: Ranking, config: PBTConfig, generator: np.random.Generator
) -> PopulationMember | None:
    """Draw one of the best that are better than ``member``, each equally likely; None unless it is among the worst."""
    size = len(ranking.best_first)
    count = truncation_count(size, config.truncation_ratio)
    if ranking.places[member.member_id] < size - count:
        return None
    return _draw(eligible_sources(member, ranking.best_first[:count], config.metric_mode), generator)


def tournament_source(
    member: PopulationMember, members: Sequence[PopulationMember], config: PBTConfig, generator: np.random.Generator
) -> PopulationMember | None:
    """Draw one opponent from all others; None unless it is better: with b better of n others, P(copied) = b / n.

    :param members: ``member`` and the others, in the order of their numbers
    """
    own = bisect_left(members, member.member_id, key=lambda each: each.member_id)
    drawn = _draw(range(len(members) - 1), generator)
    if drawn is None:
        return None
    opponent = members[drawn if drawn < own else drawn + 1]
    return _draw(eligible_sources(member, [opponent], config.metric_mode), generator)


def rank(members: Sequence[PopulationMember], metric_mode: str) -> list[PopulationMember]:
    """Sort members from best to worst; equal ones keep their order, and those without a number come last."""
    return sorted(members, key=lambda each: ranking_key(each, metric_mode), reverse=True)


def ranking_key(member: PopulationMember, metric_mode: str) -> tuple[bool, float]:
    """Return a key that is larger for better members: NaN or None is worse than every number, infinity included."""
    performance = member.performance
    if performance is None or math.isnan(performance):
        return False, 0.0
    return True, performance if metric_mode == "max" else -performance


def eligible_sources(
    member: PopulationMember, candidates: Sequence[PopulationMember], metric_mode: str
) -> Sequence[PopulationMember]:
    """Return the candidates that are strictly better than ``member``; copying an equal one would only lose diversity.

    :param candidates: from best to worst
    """
    own = ranking_key(member, metric_mode)
    return candidates[: bisect_left(candidates, True, key=lambda each: not ranking_key(each, metric_mode) > own)]


def truncation_count(size: int, ratio: float) -> int:
    """Return the number of members at either end: the share of ``size``, rounded down, and at least one."""
    return max(1, math.floor(size * ratio + _ROUNDING))


def ready_count(size: int, ready_percentage: float) -> int:
    """Return the number of members that must have reported: the share of ``size``, rounded up, and at least two."""
    return max(2, math.ceil(size * ready_percentage - _ROUNDING))


def _draw(candidates: Sequence[Item], generator: np.random.Generator) -> Item | None:
    return candidates[int(generator.integers(len(candidates)))] if candidates else None
