"""A piece of state that somebody adds to the registry is carried by every path without being named anywhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from stable_baselines3.common.callbacks import BaseCallback

from rlcore import DistributionalPPO
from rlcore.state.registry import LEARNT, Scope, StatePart
from tests.support.training import make_envs


class Counting(DistributionalPPO):
    """Counts steps, in a part of the scope under test."""

    scope = Scope.LEARNER
    steps = 0

    def _state_parts(self) -> list[StatePart]:
        def restore(state: Any) -> None:
            self.steps = state["steps"]

        added = StatePart("added_state", self.scope, lambda: {"steps": self.steps}, restore)
        return [*super()._state_parts(), added]


class Count(BaseCallback):
    """Counts, saves after ``save_at`` steps, and stops there."""

    def __init__(self, path: Path, save_at: int) -> None:
        super().__init__()
        self.path, self.save_at = path, save_at

    def _on_step(self) -> bool:
        assert isinstance(self.model, Counting)
        self.model.steps += 1
        if self.model.steps == self.save_at:
            self.model.save(self.path)
        return self.model.steps != self.save_at


@pytest.mark.parametrize("scope", Scope)
def test_what_collecting_changes_is_saved_as_of_the_start_of_the_rollout_and_is_back_when_training_goes_on(
    scope: Scope, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Counting, "scope", scope)
    model = Counting("MlpLstmPolicy", make_envs(), n_steps=16, batch_size=48, n_epochs=1, device="cpu")
    model.learn(96, callback=Count(tmp_path / "model.zip", save_at=16 + 5))
    loaded = Counting.load(tmp_path / "model.zip", env=make_envs(), device="cpu")
    loaded.learn(48, callback=Count(tmp_path / "unused.zip", save_at=-1), reset_num_timesteps=False)
    saved_as_of = 16 + 5 if scope is Scope.LEARNER else 16
    assert loaded.steps == saved_as_of + 16


@pytest.mark.parametrize("scope", Scope)
def test_parameters_hold_it_if_it_was_learnt_and_only_then(
    scope: Scope, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Counting, "scope", scope)
    model, other = (Counting("MlpLstmPolicy", make_envs(), n_steps=4, device="cpu") for _ in range(2))
    model.steps = 7
    assert ("added_state" in model.get_parameters()) == (scope in LEARNT)
    model.save(tmp_path / "model.zip")
    other.set_parameters(tmp_path / "model.zip")
    assert other.steps == (7 if scope in LEARNT else 0)
