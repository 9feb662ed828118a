"""Laws of selection and of perturbation, for any population and any range."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rlcore import HyperparamConfig, PBTConfig, PBTScheduler, PopulationMember
from rlcore.pbt.scheduler import ready_count, truncation_count

NUMBERS = st.floats(-1e6, 1e6)
SCORES = st.sampled_from([math.nan, None, math.inf, -math.inf, 0.0, 1.0, 2.0]) | NUMBERS
METHODS = st.sampled_from(["truncation", "binary_tournament"])
MODES = st.sampled_from(["max", "min"])
SEEDS = st.integers(0, 2**32 - 1)


def scored(scores: list[Any], seed: int = 0, **settings: Any) -> PBTScheduler:
    """A scheduler whose members have these scores and no files."""
    scheduler = PBTScheduler(PBTConfig(population_size=len(scores), **settings), seed=seed)
    for member, score in zip(scheduler.initialize_population([{}] * len(scores)), scores, strict=True):
        member.performance = score
    return scheduler


def copied(scheduler: PBTScheduler, ranked: list[PopulationMember] | None = None) -> list[int | None]:
    """Whom each member would copy."""
    sources = [scheduler.choose_source(member, ranked) for member in scheduler.population]
    return [None if source is None else source.member_id for source in sources]


def gain(member: PopulationMember, mode: str) -> tuple[bool, float]:
    assert member.performance is not None
    if math.isnan(member.performance):
        return False, 0.0
    return True, member.performance if mode == "max" else -member.performance


def by_definition(scheduler: PBTScheduler, member: PopulationMember) -> PopulationMember | None:
    """Whom a member copies, from the definitions alone: rank everybody, list who may be drawn, draw."""
    config, ready = scheduler.config, [each for each in scheduler.population if each.performance is not None]
    if member not in ready:
        return None

    def draw(candidates: list[PopulationMember]) -> PopulationMember | None:
        better = [each for each in candidates if gain(each, config.metric_mode) > gain(member, config.metric_mode)]
        return better[int(scheduler.generator.integers(len(better)))] if better else None

    if config.exploit_method == "truncation":
        ranked = sorted(ready, key=lambda each: gain(each, config.metric_mode), reverse=True)
        count = max(1, math.floor(len(ranked) * config.truncation_ratio + 1e-9))
        return draw(ranked[:count]) if member in ranked[len(ranked) - count :] else None
    others = [each for each in ready if each is not member]
    return draw([others[int(scheduler.generator.integers(len(others)))]]) if others else None


@given(st.lists(SCORES, min_size=2, max_size=30), st.floats(0.01, 1.0), METHODS, MODES, SEEDS)
@example([math.nan, 1.0, 1.0, 2.0, 2.0, math.nan, 2.0], 1.0, "truncation", "max", 0)
@example([1.0, None, 2.0, None, 1.0], 0.5, "binary_tournament", "min", 3)
def test_nobody_copies_itself_or_one_that_is_not_better(
    scores: list[Any], ratio: float, method: Any, mode: Any, seed: int
) -> None:
    """Every decision and every draw is the one of the definitions, also if all share one ranking."""
    settings = {"exploit_method": method, "metric_mode": mode, "truncation_ratio": ratio}
    expected, each_ranks, together = (scored(scores, seed, **settings) for _ in range(3))
    sources = [by_definition(expected, member) for member in expected.population]
    numbers = [None if source is None else source.member_id for source in sources]
    assert copied(each_ranks) == copied(together, together.ranked()) == numbers
    states = [each.generator.bit_generator.state for each in (expected, each_ranks, together)]
    assert states[0] == states[1] == states[2]


def test_a_share_that_is_a_whole_number_of_members_is_that_number() -> None:
    assert [truncation_count(100, hundredth / 100) for hundredth in range(1, 101)] == list(range(1, 101))
    assert [ready_count(100, hundredth / 100) for hundredth in range(2, 101)] == list(range(2, 101))
    assert [ready_count(size, 0.8) for size in (2, 3, 4, 5, 10)] == [2, 3, 4, 4, 8]
    assert ready_count(10, 0.0) == 2


@pytest.mark.parametrize("better", [0, 2, 5, 9])
def test_a_tournament_draws_one_opponent(better: int) -> None:
    """With ``better`` of the 9 others ahead, one draw copies with probability better / 9.

    For the sixth of ten that is 5/9 = 0.556. Drawing once to see whether to copy and again for whom, and copying only
    if both are better, gives (5/9)^2 = 0.309; the audited system copied in a share of 0.306.
    """
    scheduler, draws = scored(list(range(10)), 7, exploit_method="binary_tournament"), 1500
    chosen = [scheduler.choose_source(scheduler.population[9 - better]) for _ in range(draws)]
    expected = better / 9
    share = sum(source is not None for source in chosen) / draws
    assert abs(share - expected) <= 5 * math.sqrt(expected * (1 - expected) / draws)


@pytest.mark.parametrize("mode", ["max", "min"])
@pytest.mark.parametrize("nothing", [math.nan, None])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_nan_and_nothing_rank_last(mode: str, nothing: float | None, place: int) -> None:
    performances = [-math.inf, math.inf]
    best, middle, last = scored([*performances[:place], nothing, *performances[place:]], metric_mode=mode).ranked()
    assert last.performance is nothing
    assert (best.performance, middle.performance) == ((math.inf, -math.inf) if mode == "max" else (-math.inf, math.inf))


ENDS = st.tuples(NUMBERS, NUMBERS).filter(lambda ends: ends[0] < ends[1])
INT_ENDS = st.tuples(st.integers(-1000, 1000), st.integers(-1000, 1000)).filter(lambda ends: ends[0] < ends[1])
FACTORS = st.floats(1.001, 100.0)


@given(ENDS | INT_ENDS, FACTORS, SEEDS, st.floats(-1e7, 1e7))
def test_every_value_stays_inside_the_range_and_of_its_type(
    ends: tuple[Any, Any], factor: float, seed: int, start: float
) -> None:
    config = HyperparamConfig("x", min_value=ends[0], max_value=ends[1], perturbation_factor=factor)
    generator, kind = np.random.default_rng(seed), int if config.is_integer else float
    drawn = config.resample(generator)
    for value in (drawn, config.perturb(drawn, generator), config.perturb(start, generator)):
        assert type(value) is kind
        assert isinstance(value, int | float)
        assert ends[0] <= value <= ends[1]


@given(st.integers(2, 1000), FACTORS, SEEDS)
@example(2, 1.2, 0)
def test_an_int_moves_by_at_least_one(value: int, factor: float, seed: int) -> None:
    """2 * 1.2 and 2 / 1.2 both round to 2, where perturbation would stand still for ever."""
    config = HyperparamConfig("x", min_value=1, max_value=10**6, perturbation_factor=factor)
    moved = config.perturb(value, np.random.default_rng(seed))
    assert type(moved) is int
    assert moved != value


def test_an_int_that_would_stand_still_moves_to_either_side() -> None:
    config, generator = (
        HyperparamConfig("x", min_value=1, max_value=9, perturbation_factor=1.2),
        np.random.default_rng(0),
    )
    assert {config.perturb(2, generator) for _ in range(20)} == {1, 3}


@pytest.mark.parametrize("last", [2, 4])
@pytest.mark.parametrize("is_log_scale", [False, True])
def test_every_int_of_a_range_has_the_share_of_what_rounds_to_it(is_log_scale: bool, last: int) -> None:
    """Without the half below 1, it would have 0.20 of a log range from 1 to 4 instead of 0.50."""
    config, draws = HyperparamConfig("x", min_value=1, max_value=last, is_log_scale=is_log_scale), 800
    generator = np.random.default_rng(0)
    drawn = [config.resample(generator) for _ in range(draws)]
    for value in range(1, last + 1):
        wide = math.log((value + 0.5) / (value - 0.5)) / math.log((last + 0.5) / 0.5)
        share = wide if is_log_scale else 1 / last
        assert abs(drawn.count(value) / draws - share) < 5 * math.sqrt(share * (1 - share) / draws)
