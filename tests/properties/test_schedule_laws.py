"""Laws of the entropy schedule and of the KL penalty, for any settings and any course of training."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rlcore.ppo.coefficients import EntropySchedule, KLPenalty

coefficients = st.one_of(st.just(0.0), st.floats(1e-6, 10.0))
progress = st.floats(0.0, 1.0)
explained = st.one_of(st.just(float("nan")), st.floats(-3.0, 1.0))
ALMOST = 1 + 1e-12
"""Rounding of one linear interpolation."""


@st.composite
def entropy_settings(
    draw: st.DrawFn, *, start: Any = coefficients, floor: Any = coefficients, boost: Any = None
) -> Any:
    return SimpleNamespace(
        ent_coef=draw(start),
        ent_coef_final=draw(st.one_of(st.none(), coefficients)),
        ent_coef_min=draw(floor),
        ent_coef_boost=draw(st.floats(1.0, 8.0, exclude_min=True) if boost is None else boost),
        ent_coef_plateau_explained_variance=draw(st.floats(-1.0, 1.0)),
        ent_coef_plateau_patience=draw(st.integers(1, 5)),
    )


@given(entropy_settings(), st.lists(st.tuples(explained, progress), max_size=20))
def test_the_coefficient_lies_between_the_floor_and_the_boosted_larger_end(settings: Any, updates: Any) -> None:
    schedule = EntropySchedule(settings)
    ends = settings.ent_coef, settings.ent_coef_final or 0.0, settings.ent_coef_min
    largest = max(ends) * settings.ent_coef_boost
    for variance, remaining in updates:
        schedule.observe(variance)
        assert settings.ent_coef_min <= schedule.coefficient(remaining) <= largest * ALMOST


@given(entropy_settings(boost=st.none()), st.lists(progress, min_size=2, max_size=10), st.lists(explained, max_size=5))
def test_without_boost_the_coefficient_goes_one_way_whatever_the_critics_do(
    settings: Any, remaining: list[float], variances: list[float]
) -> None:
    schedule = EntropySchedule(settings)
    for variance in variances:
        schedule.observe(variance)
    course = [schedule.coefficient(value) for value in sorted(remaining, reverse=True)]
    rising = settings.ent_coef_final is not None and settings.ent_coef_final > settings.ent_coef
    for before, after in pairwise(course):
        assert before <= after * ALMOST if rising else after <= before * ALMOST


@given(
    entropy_settings(start=st.just(0.0), floor=st.just(0.0)),
    st.lists(st.tuples(explained, progress), min_size=1, max_size=20),
)
def test_zero_stays_zero(settings: Any, updates: Any) -> None:
    settings.ent_coef_final = 0.0 if settings.ent_coef_final is not None else None
    schedule = EntropySchedule(settings)
    for variance, remaining in updates:
        schedule.observe(variance)
        assert schedule.coefficient(remaining) == 0.0


@given(entropy_settings(), st.lists(explained, max_size=20), progress)
def test_as_many_good_updates_as_it_waited_for_end_every_boost(
    settings: Any, variances: list[float], remaining: float
) -> None:
    schedule = EntropySchedule(settings)
    unboosted = schedule.coefficient(remaining)
    for variance in variances:
        schedule.observe(variance)
    for _ in range(settings.ent_coef_plateau_patience):
        schedule.observe(1.0)
    assert schedule.coefficient(remaining) == unboosted


@given(
    st.floats(1e-4, 1.0),
    st.floats(1e-3, 1.0),
    st.floats(1.0, 1e3),
    st.lists(st.one_of(st.sampled_from((0.66, 0.68, 1.48, 1.52)), st.floats(0.0, 10.0)), min_size=1, max_size=30),
)
def test_the_kl_coefficient_moves_by_exactly_two_towards_the_target_within_its_bounds(
    target: float, low: float, high: float, over_target: list[float]
) -> None:
    settings: Any = SimpleNamespace(
        kl_penalty_target=target, kl_penalty_coef=1.0, kl_penalty_min_coef=low, kl_penalty_max_coef=high
    )
    penalty = KLPenalty(settings)
    for kl in (target * ratio for ratio in over_target):
        before = penalty.coefficient
        penalty.adapt(kl)
        expected = before * 2 if kl > target * 1.5 else before / 2 if kl < target / 1.5 else before
        assert penalty.coefficient == sorted((low, expected, high))[1]
