"""Saves and changes around a run that was stopped, in the order in which a user might make them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from stable_baselines3.common.callbacks import BaseCallback

from rlcore import DistributionalPPO, ResumeWarning
from tests.support.configurations import ALWAYS_MOVING
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
    model = make_model(**ALWAYS_MOVING)
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
