"""The entropy coefficient: decay, floor and boost by hand, what trains, and which settings contradict each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from stable_baselines3.common.logger import Logger

from rlcore import StateError
from rlcore.ppo import logging, losses
from rlcore.ppo.adaptive import EntropySchedule
from tests.support.training import make_envs, make_model


@dataclass
class Settings:
    ent_coef: float = 0.1
    ent_coef_final: float | None = None
    ent_coef_min: float = 0.0
    ent_coef_boost: float | None = None
    ent_coef_plateau_explained_variance: float = 0.5
    ent_coef_plateau_patience: int = 2


def observed(schedule: EntropySchedule, *explained: float) -> list[float]:
    """The coefficient at half of the progress after each of the updates."""
    coefficients = []
    for value in explained:
        schedule.observe(value)
        coefficients.append(schedule.coefficient(0.5))
    return coefficients


def test_a_schedule_is_linear_from_start_to_final_and_stops_at_the_floor() -> None:
    schedule = EntropySchedule(Settings(ent_coef=0.1, ent_coef_final=0.0, ent_coef_min=0.02))
    coefficients = [schedule.coefficient(remaining) for remaining in (1.0, 0.75, 0.5, 0.1, 0.0)]
    assert coefficients == pytest.approx([0.1, 0.075, 0.05, 0.02, 0.02])
    rising = EntropySchedule(Settings(ent_coef=0.1, ent_coef_final=0.3))
    assert [rising.coefficient(remaining) for remaining in (1.0, 0.5, 0.0)] == pytest.approx([0.1, 0.2, 0.3])


@pytest.mark.parametrize("boost", [None, 4.0])
def test_zero_stays_zero_without_a_floor(boost: float | None) -> None:
    schedule = EntropySchedule(Settings(ent_coef=0.0, ent_coef_boost=boost, ent_coef_plateau_patience=1))
    assert observed(schedule, -1.0, -1.0) == [0.0, 0.0]


NAN = float("nan")
BOOSTED: list[tuple[int, list[float], list[float]]] = [
    (2, [0.4, 0.6, 0.4, 0.4, 0.4, 0.6, 0.6, 0.6], [0.1, 0.1, 0.1, 0.4, 0.4, 0.2, 0.1, 0.1]),
    (2, [0.0, 0.0, 0.6, 0.0, 0.6], [0.1, 0.4, 0.2, 0.2, 0.1]),
    (1, [0.5], [0.1]),
    (2, [NAN, 0.0, NAN, 0.0, NAN, NAN], [0.1, 0.1, 0.1, 0.4, 0.4, 0.4]),
]


@pytest.mark.parametrize(("patience", "explained", "expected"), BOOSTED)
def test_boost_waits_for_bad_updates_in_a_row_and_decays_back_in_as_many(
    patience: int, explained: list[float], expected: list[float]
) -> None:
    """A bad update on the way back holds the boost, one at the threshold is good, equal returns say nothing."""
    schedule = EntropySchedule(Settings(ent_coef_boost=4.0, ent_coef_plateau_patience=patience))
    assert observed(schedule, *explained) == pytest.approx(expected)


def test_the_floor_holds_before_the_boost_so_that_the_boost_multiplies_it() -> None:
    settings = Settings(
        ent_coef=0.1, ent_coef_final=0.0, ent_coef_min=0.08, ent_coef_boost=3.0, ent_coef_plateau_patience=1
    )
    assert observed(EntropySchedule(settings), 0.0) == pytest.approx([0.24])


def test_counters_taken_over_are_read_under_the_settings_of_the_one_who_takes_them() -> None:
    giver, taker = (
        EntropySchedule(Settings(ent_coef_boost=4.0, ent_coef_plateau_patience=5)),
        EntropySchedule(Settings(ent_coef_boost=9.0, ent_coef_plateau_patience=2)),
    )
    observed(giver, *[0.0] * 5)
    state = giver.capture()
    assert state == {"bad_updates": 5, "boost_level": 5}
    taker.restore(state)
    assert taker.coefficient(0.5) == pytest.approx(0.9)
    assert observed(taker, 0.6, 0.6) == pytest.approx([0.3, 0.1])


def test_without_boost_there_is_no_state_and_counters_given_have_no_effect() -> None:
    schedule = EntropySchedule(Settings())
    observed(schedule, 0.0, 0.0)
    assert schedule.capture() is None
    schedule.restore({"bad_updates": 3, "boost_level": 2})
    assert schedule.coefficient(0.5) == 0.1


@pytest.mark.parametrize("damage", [{"bad_updates": -1}, {"boost_level": 1.5}, {"boost_level": True}, {"other": 1}])
def test_counters_that_are_none_are_refused_and_nothing_changes(damage: dict[str, Any]) -> None:
    schedule = EntropySchedule(Settings(ent_coef_boost=4.0))
    observed(schedule, 0.0, 0.0)
    before = schedule.capture()
    with pytest.raises(StateError, match="entropy_state"):
        schedule.restore({"bad_updates": 0, "boost_level": 0, **damage})
    assert schedule.capture() == before


def test_an_update_uses_the_explained_variance_of_its_own_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rollouts are said to be good, bad and good: the second update is the boosted one, not the third."""
    said = iter([0.9, -0.9, 0.9])
    monkeypatch.setattr(logging, "explained_variance_of", lambda _: next(said))
    seen = coefficients_that_train(monkeypatch)
    model = make_model(ent_coef=0.01, ent_coef_boost=4.0, ent_coef_plateau_patience=1, n_epochs=1, batch_size=48)
    model.learn(3 * 48)
    assert seen == pytest.approx([0.01, 0.04, 0.01])


def coefficients_that_train(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    original, seen = losses.minibatch_losses, []

    def recorded(*args: Any, **kwargs: Any) -> losses.MinibatchLosses:
        seen.append(kwargs["ent_coef"])
        return original(*args, **kwargs)

    monkeypatch.setattr(losses, "minibatch_losses", recorded)
    return seen


def test_the_schedule_is_what_trains_and_what_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = coefficients_that_train(monkeypatch)
    model = make_model(ent_coef_initial=0.3, ent_coef_final=0.0, n_epochs=1, batch_size=48)
    model.set_logger(Logger(None, []))
    model.learn(3 * 48, log_interval=1000)
    assert seen == pytest.approx([0.2, 0.1, 0.0])
    assert model.logger.name_to_value["train/ent_coef"] == seen[-1]


@pytest.mark.filterwarnings("error")
def test_models_exchange_parameters_under_the_receivers_settings() -> None:
    adaptive = {"ent_coef": 0.01, "ent_coef_boost": 4.0, "ent_coef_plateau_explained_variance": 1.0}
    giver, plain = make_model(**adaptive), make_model(ent_coef=0.5)
    giver.learn(96)
    plain.set_parameters(giver.get_parameters())
    assert plain.entropy_schedule.coefficient(1.0) == 0.5
    other = make_model(make_envs(seed=4), **{**adaptive, "ent_coef": 0.02, "ent_coef_plateau_patience": 2})
    other.set_parameters(giver.get_parameters())
    other.entropy_schedule.observe(0.0)
    assert other.entropy_schedule.coefficient(1.0) == pytest.approx(0.08)
