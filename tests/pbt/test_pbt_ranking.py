"""One ranking for a round: every decision and every draw is what ranking for each member gives, and it is made once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from rlcore import PBTConfig, PBTScheduler, PopulationMember

SCORES = st.sampled_from([math.nan, None, math.inf, -math.inf, 0.0, 1.0, 2.0]) | st.floats(-10.0, 10.0)
METHODS = st.sampled_from(["truncation", "binary_tournament"])
MODES = st.sampled_from(["max", "min"])
RATIOS = st.floats(0.01, 1.0)
SEEDS = st.integers(0, 2**32 - 1)


def member_by_member(scheduler: PBTScheduler, member: PopulationMember) -> PopulationMember | None:
    """Whom a member copies, from the definitions alone: rank everybody, list who may be drawn, draw."""
    config, ready = scheduler.config, [each for each in scheduler.population if each.performance is not None]
    if member not in ready:
        return None

    def gain(each: PopulationMember) -> tuple[bool, float]:
        assert each.performance is not None
        if math.isnan(each.performance):
            return False, 0.0
        return True, each.performance if config.metric_mode == "max" else -each.performance

    def draw(candidates: list[PopulationMember]) -> PopulationMember | None:
        return candidates[int(scheduler.generator.integers(len(candidates)))] if candidates else None

    if config.exploit_method == "truncation":
        ranked = sorted(ready, key=gain, reverse=True)
        count = max(1, math.floor(len(ranked) * config.truncation_ratio + 1e-9))
        if member not in ranked[len(ranked) - count :]:
            return None
        return draw([each for each in ranked[:count] if gain(each) > gain(member)])
    opponent = draw([each for each in ready if each is not member])
    return None if opponent is None else draw([each for each in [opponent] if gain(each) > gain(member)])


def scored(scores: list[Any], seed: int, **settings: Any) -> PBTScheduler:
    """A scheduler whose members have these scores and no files."""
    scheduler = PBTScheduler(PBTConfig(population_size=len(scores), **settings), seed=seed)
    for member, score in zip(scheduler.initialize_population([{}] * len(scores)), scores, strict=True):
        member.performance = score
    return scheduler


@given(st.lists(SCORES, min_size=2, max_size=30), RATIOS, METHODS, MODES, SEEDS)
@example([math.nan, 1.0, 1.0, 2.0, 2.0, math.nan, 2.0], 1.0, "truncation", "max", 0)
@example([1.0, None, 2.0, None, 1.0], 0.5, "binary_tournament", "min", 3)
def test_decisions_and_draws_are_those_of_ranking_for_each_member(
    scores: list[Any], ratio: float, method: Any, mode: Any, seed: int
) -> None:
    share = {"truncation_ratio": ratio} if method == "truncation" else {}
    expected, each_ranks, ranked = (
        scored(scores, seed, exploit_method=method, metric_mode=mode, **share) for _ in range(3)
    )
    by_definition = [member_by_member(expected, member) for member in expected.population]
    alone = [each_ranks.choose_source(member) for member in each_ranks.population]
    order = ranked.ranked()
    together = [ranked.choose_source(member, order) for member in ranked.population]
    numbers = [[source and source.member_id for source in found] for found in (by_definition, alone, together)]
    assert numbers[0] == numbers[1] == numbers[2]
    states = [each.generator.bit_generator.state for each in (expected, each_ranks, ranked)]
    assert states[0] == states[1] == states[2]


def test_a_draw_among_three_is_the_draw_of_the_generator() -> None:
    """Of members 0 to 3, member 1 draws from 0, 2 and 3: number 1 of them is member 2."""
    scheduler = scored([3.0, 0.0, 1.0, 2.0], 0, exploit_method="binary_tournament")
    generator = np.random.Generator(np.random.PCG64(0))
    for _ in range(20):
        source = scheduler.choose_source(scheduler.population[1])
        assert source is not None
        assert source.member_id == [0, 2, 3][int(generator.integers(3))]
        generator.integers(1)
