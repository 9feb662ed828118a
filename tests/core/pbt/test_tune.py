"""Trials of Ray Tune: the present config trains, a trial goes on to the bit, another hands over, NaN ranks last."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

pytest.importorskip("ray")

from stable_baselines3.common.vec_env import VecNormalize

from rlcore import DistributionalPPO, NonFiniteReturnError, SettingError
from rlcore.state.training import Scope
from rlcore.tune import DistributionalPPOTrainable, effective_hyperparameters, trainable
from tests.support.live_models import captured
from tests.support.ray_trials import CONFIG, as_ray_gives, build, results_in
from tests.support.training import differing

pytestmark = pytest.mark.slow

EXPLORED: dict[str, Any] = {"learning_rate": 3e-4, "clip_range": 0.1, "ent_coef": 0.02, "sigma": 0.03}
TOTAL = 320


@pytest.fixture(autouse=True)
def _own_results(tmp_path: Path) -> Iterator[None]:
    with results_in(tmp_path / "results"):
        yield


def trial(name: str = "x_00000", config: dict[str, Any] = CONFIG, **options: Any) -> DistributionalPPOTrainable:
    kind = trainable(options.pop("make_model", build), **{"total_timesteps": TOTAL, **options})
    return kind(as_ray_gives(config, name))


def saved(source: DistributionalPPOTrainable, folder: Path) -> str:
    source.save_checkpoint(str(folder))
    return str(folder)


def trained(steps: int, *arguments: Any, **options: Any) -> DistributionalPPOTrainable:
    made = trial(*arguments, **options)
    for _ in range(steps):
        made.train()
    return made


def whole(of: DistributionalPPOTrainable) -> dict[str, Any]:
    """Every part of the training state, without the times of episodes; the generators are those of the trial."""
    with of._generators.in_place():
        state: dict[str, Any] = of.model._training_state().capture(*Scope)
    for episode in state["progress_state"]["ep_info_buffer"]:
        del episode["t"]
    return state


def as_new_actor(name: str, config: dict[str, Any], folder: str, **options: Any) -> DistributionalPPOTrainable:
    """What Ray does without ``reuse_actors``."""
    made = trial(name, config, **options)
    made.restore(folder)
    return made


def as_used_actor(name: str, config: dict[str, Any], folder: str, **options: Any) -> DistributionalPPOTrainable:
    """What Ray does with ``reuse_actors``: the actor has trained a trial of another config."""
    made = trained(1, "x_00009", {**CONFIG, "learning_rate": 7e-4, "gamma": 0.5}, **options)
    assert made.reset(as_ray_gives(config, name))
    made.restore(folder)
    return made


RESTORES = pytest.mark.parametrize("restored", [as_new_actor, as_used_actor])


@RESTORES
def test_a_trial_goes_on_to_the_bit(restored: Callable[..., DistributionalPPOTrainable], tmp_path: Path) -> None:
    straight = trained(4)
    again = restored("x_00000", CONFIG, saved(trained(2), tmp_path))
    for _ in range(2):
        again.train()
    assert differing(whole(straight), whole(again)) == []


@RESTORES
@pytest.mark.parametrize("strategy", ["reset", "copy"])
@pytest.mark.parametrize("name", ["x_00001", "x_00000"], ids=["of another trial", "of the trial itself"])
def test_the_explored_values_train(
    restored: Callable[..., DistributionalPPOTrainable], strategy: str, name: str, tmp_path: Path
) -> None:
    folder = saved(trained(2, name), tmp_path)
    again = restored("x_00000", EXPLORED, folder, optimizer_exploit_strategy=strategy)
    assert effective_hyperparameters(again.model, EXPLORED) == EXPLORED
    rates: set[tuple[float, float]] = set()
    again.model.policy.optimizer.register_step_pre_hook(
        lambda own, _args, _kwargs: rates.update((group["lr"], group["sigma"]) for group in own.param_groups)
    )
    assert again.step()["effective"] == EXPLORED
    assert rates == {(EXPLORED["learning_rate"], EXPLORED["sigma"])}


@RESTORES
def test_a_trial_takes_over_what_another_has_learnt(
    restored: Callable[..., DistributionalPPOTrainable], tmp_path: Path
) -> None:
    source = trained(2, "x_00001")
    folder = saved(source, tmp_path)
    receiver = restored("x_00000", CONFIG, folder, optimizer_exploit_strategy="copy")
    assert not as_new_actor("x_00000", CONFIG, folder).model.policy.optimizer.state
    for key in ("policy", "policy.optimizer", "vgs_state", "return_scale_state", "normalizer_state"):
        own, theirs = (captured(each.model)[key] for each in (receiver, source))
        if key == "policy.optimizer":
            own, theirs = own["state"], theirs["state"]
        assert differing(own, theirs) == [], key
    envs = [each.model.get_env() for each in (receiver, source)]
    assert differing(*(env.normalize_obs(np.ones(4)).tolist() for env in envs if isinstance(env, VecNormalize))) == []
    assert receiver.model.num_timesteps == source.model.num_timesteps == 64
    assert receiver.step()["timesteps_total"] == 96


def test_a_used_actor_starts_a_trial_from_scratch() -> None:
    used = trained(1, "x_00001", EXPLORED)
    env = used.model.get_env()
    assert env is not None
    with mock.patch.object(env, "close") as closed:
        used.reset(as_ray_gives(CONFIG, "x_00000"))
    assert closed.called
    used.train()
    assert differing(whole(used), whole(trained(1))) == []


def test_a_trial_that_copied_goes_on_to_the_bit(tmp_path: Path) -> None:
    first = as_new_actor("x_00000", EXPLORED, saved(trained(2, "x_00001"), tmp_path))
    first.train()
    again = as_new_actor("x_00000", EXPLORED, saved(first, tmp_path))
    for each in (first, again):
        each.train()
    assert differing(whole(first), whole(again)) == []


def test_a_trial_depends_on_its_number_alone_and_environments_after_a_copy_are_new_ones(tmp_path: Path) -> None:
    alone, first, between, same = trained(2), trained(1), trained(1, "x_00001"), trained(2, "y_00000")
    receiver = as_new_actor("x_00000", CONFIG, saved(between, tmp_path))
    between.train()
    first.train()
    assert differing(whole(alone), whole(first)) == differing(whole(alone), whole(same)) == []
    assert len({each.model.seed for each in (alone, between, receiver)}) == 3
    receiver.step()
    used = [each.model.rollout_buffer.observations for each in (alone, between, receiver)]
    assert not any(np.array_equal(used[one], used[other]) for one, other in ((0, 1), (0, 2), (1, 2)))


def test_a_schedule_counts_by_the_total_and_goes_on_after_a_copy(tmp_path: Path) -> None:
    def scheduled(config: dict[str, Any], seed: int) -> DistributionalPPO:
        model = build(config, seed)
        model.learning_rate = lambda remaining: config["first"] * remaining
        return model

    source = trained(4, "x_00001", {"first": 1e-2}, make_model=scheduled)
    assert source.step()["effective"]["learning_rate"] == pytest.approx(1e-2 * (1 - 160 / TOTAL))
    folder = saved(source, tmp_path)
    receiver = as_new_actor("x_00000", {"first": 2e-2}, folder, make_model=scheduled)
    assert effective_hyperparameters(receiver.model)["learning_rate"] == pytest.approx(2e-2 * (1 - 160 / TOTAL))
    assert receiver.step()["effective"]["learning_rate"] == pytest.approx(2e-2 * (1 - 192 / TOTAL))


@pytest.mark.parametrize(("mode", "worst"), [("max", -math.inf), ("min", math.inf)])
def test_a_trial_that_diverged_scores_worst_and_comes_to_an_end(mode: Any, worst: float) -> None:
    assert trial(mode=mode, performance=lambda _: math.nan).step()["score"] == worst
    made = trial(mode=mode, total_timesteps=96)
    assert not made.train()["done"]
    before = captured(made.model)["policy"]

    def fail(*_: Any, **__: Any) -> None:
        raise NonFiniteReturnError("a return is NaN")

    made.model.collect_rollouts = fail  # type: ignore[method-assign]
    results = [made.train() for _ in range(2)]
    assert [each["score"] for each in results] == [worst, worst]
    assert [each["diverged"] for each in results] == [True, True]
    assert results[-1]["done"]
    assert differing(before, captured(made.model)["policy"]) == []


@pytest.mark.parametrize(
    ("config", "words"), [({"n_critics": 1}, "n_critics=1 has no effect"), ({"clip_range": -1.0}, "clip_range")]
)
def test_a_setting_that_make_model_ignores_or_that_cannot_be_used_is_refused(
    config: dict[str, Any], words: str
) -> None:
    with pytest.raises(SettingError, match=words):
        trial(config=config)
