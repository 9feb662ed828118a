"""Saves and changes around a run that was stopped, in the order in which a user might make them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from stable_baselines3.common.callbacks import BaseCallback

from rlcore import DistributionalPPO, ResumeWarning, SettingError
from tests.support.training import differing, make_envs, make_model


class StopAfter(BaseCallback):
    """Stops in the middle of a rollout."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def _on_step(self) -> bool:
        return self.n_calls < self.steps


class SetOwnParameters(BaseCallback):
    """Gives a model its own policy in the middle of a rollout, saves, and stops."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def _on_step(self) -> bool:
        if self.n_calls != 21:
            return True
        assert isinstance(self.model, DistributionalPPO)
        self.model.set_parameters({"policy": self.model.get_parameters()["policy"]}, exact_match=False)
        self.model.save(self.path)
        return False


def reloaded(model: DistributionalPPO, folder: Path, **settings: Any) -> DistributionalPPO:
    model.save(folder / "model.zip")
    return DistributionalPPO.load(folder / "model.zip", env=make_envs(normalize=True), device="cpu", **settings)


@pytest.fixture
def stopped() -> DistributionalPPO:
    model = make_model(make_envs(normalize=True))
    model.learn(144, callback=StopAfter(21))
    return model


@pytest.mark.parametrize("copied", ["file", "deepcopy"])
def test_a_policy_changed_after_a_stop_is_what_is_saved(
    copied: str, stopped: DistributionalPPO, tmp_path: Path
) -> None:
    with torch.no_grad():
        stopped.policy.action_net.bias.add_(1.0)
    twin = copy.deepcopy(stopped) if copied == "deepcopy" else reloaded(stopped, tmp_path)
    assert torch.equal(twin.policy.action_net.bias, stopped.policy.action_net.bias)


def test_an_optimizer_rebuilt_after_a_stop_is_what_is_saved(stopped: DistributionalPPO, tmp_path: Path) -> None:
    stopped.rebuild_optimizer()
    assert len(reloaded(stopped, tmp_path).policy.optimizer.state) == 0


def test_setting_what_is_there_already_in_a_rollout_changes_nothing_of_the_resume(tmp_path: Path) -> None:
    whole = make_model(make_envs(normalize=True))
    whole.learn(144)
    expected = whole.get_parameters()
    make_model(make_envs(normalize=True)).learn(144, callback=SetOwnParameters(tmp_path / "model.zip"))
    loaded = DistributionalPPO.load(tmp_path / "model.zip", env=make_envs(normalize=True), device="cpu")
    loaded.learn(144 - loaded.num_timesteps, reset_num_timesteps=False)
    assert differing(expected, loaded.get_parameters()) == []


def test_an_update_that_fails_leaves_no_trace() -> None:
    model = make_model()
    model.learn(48)
    before, updates = model.get_parameters(), model._n_updates
    step, calls = model.policy.optimizer.step, []

    def failing() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise FloatingPointError
        step()

    model.policy.optimizer.step = failing  # type: ignore[method-assign,assignment]
    with pytest.raises(FloatingPointError):
        model.learn(48, reset_num_timesteps=False)
    assert differing(before, model.get_parameters()) == []
    assert model._n_updates == updates


def test_the_normaliser_of_a_file_reaches_whatever_environment_training_goes_on_in(
    stopped: DistributionalPPO, tmp_path: Path
) -> None:
    loaded = reloaded(stopped, tmp_path)
    saved = loaded.get_parameters()["normalizer_state"]
    for _ in range(2):
        loaded.set_env(make_envs(normalize=True))
        assert differing(saved, loaded.get_parameters()["normalizer_state"]) == []


@pytest.mark.parametrize("total", ["abc", -5, 1.5, None, True, float("nan")])
def test_a_total_that_is_none_is_refused(total: Any) -> None:
    with pytest.raises(SettingError, match="total_timesteps"):
        make_model().learn(total)


def test_a_new_seed_on_loading_makes_another_run(stopped: DistributionalPPO, tmp_path: Path) -> None:
    def continued(seed: int) -> dict[str, Any]:
        loaded = reloaded(stopped, tmp_path, seed=seed)
        loaded.learn(48, reset_num_timesteps=False)
        return loaded.get_parameters()

    assert differing(continued(1), continued(1)) == []
    assert differing(continued(1), continued(2)) != []


def test_adaptive_noise_is_switched_on_over_the_moments_of_a_model_without_it() -> None:
    giver, taker = make_model(), make_model(optimizer_kwargs={"adaptive_noise": True})
    for model in (giver, taker):
        model.learn(48)
    taker.set_parameters(giver.get_parameters())
    taker.learn(48, reset_num_timesteps=False)
    counted = [state["noise_step"] for state in taker.policy.optimizer.state.values()]
    assert counted == [4] * len(counted) != []
    giver.set_parameters(taker.get_parameters())
    assert differing(giver.get_parameters()["policy"], taker.get_parameters()["policy"]) == []


@pytest.mark.parametrize(
    ("optimizer_class", "option"),
    [("rmsprop", {"momentum": 0.5}), ("rmsprop", {"centered": True}), ("adam", {"amsgrad": True})],
)
def test_an_option_that_needs_other_moments_starts_fresh_with_a_warning(
    optimizer_class: str, option: dict[str, Any], tmp_path: Path
) -> None:
    model = make_model(make_envs(normalize=True), optimizer_class=optimizer_class)
    model.learn(48)
    with pytest.warns(ResumeWarning, match="starts fresh"):
        loaded = reloaded(model, tmp_path, optimizer_kwargs=option)
    loaded.learn(48, reset_num_timesteps=False)


def test_an_interrupted_update_is_saved_as_it_began_and_resumes_exactly(tmp_path: Path) -> None:
    whole = make_model(make_envs(normalize=True))
    whole.learn(144)
    expected = whole.get_parameters()

    model = make_model(make_envs(normalize=True))
    step, steps = model.policy.optimizer.step, []

    def interrupted() -> None:
        steps.append(1)
        if len(steps) == 6:
            raise KeyboardInterrupt
        step()

    model.policy.optimizer.step = interrupted  # type: ignore[method-assign,assignment]
    with pytest.raises(KeyboardInterrupt):
        model.learn(144)
    model.save(tmp_path / "model.zip")
    loaded = DistributionalPPO.load(tmp_path / "model.zip", env=make_envs(normalize=True), device="cpu")
    assert loaded.num_timesteps == 48
    loaded.learn(144 - 48, reset_num_timesteps=False)
    assert differing(expected, loaded.get_parameters()) == []
