"""Where a run stands: counters, generators, and what a save holds around and within a rollout."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback

from rlcore import DistributionalPPO
from rlcore.ppo import state_parts
from tests.support.training import differing, make_envs, make_model


def trained(**settings: Any) -> DistributionalPPO:
    model = make_model(make_envs(normalize=True), **settings)
    model.learn(96)
    return model


def test_counters_and_the_window_of_episodes_survive_a_file(tmp_path: Path) -> None:
    model = trained(stats_window_size=7)
    counters = ("num_timesteps", "_total_timesteps", "_episode_num", "_n_updates", "_current_progress_remaining")
    for number, name in zip((11, 12, 13, 14, 0.15), counters, strict=True):
        setattr(model, name, number)
    model.save(tmp_path / "model.zip")
    loaded = DistributionalPPO.load(tmp_path / "model.zip", device="cpu")
    assert [getattr(loaded, name) for name in counters] == [11, 12, 13, 14, 0.15]
    for name in ("ep_info_buffer", "ep_success_buffer"):
        mine, theirs = getattr(model, name), getattr(loaded, name)
        assert (list(theirs), theirs.maxlen) == (list(mine), 7)


def draws() -> list[Any]:
    """Numbers of every kind from every global generator; an odd number of NumPy's normals leaves one cached."""
    python, numpy = [random.random(), random.gauss(0, 1)], [np.random.normal(), np.random.random()]
    return [*python, *numpy, *torch.rand(3).tolist(), *torch.randn(3).tolist()]


def test_every_global_generator_goes_on_where_it_was_captured() -> None:
    draws()
    captured = state_parts.capture_generators()
    first = [draws(), draws()]
    state_parts.apply_generators(captured)
    assert [draws(), draws()] == first


class Act(BaseCallback):
    """Does one thing in the middle of a rollout, then lets training go on or stops it."""

    def __init__(self, action: Callable[[], object], *, go_on: bool) -> None:
        super().__init__()
        self.action, self.go_on = action, go_on

    def _on_step(self) -> bool:
        if self.n_calls == 5:
            self.action()
        return self.go_on or self.n_calls < 5


def test_parameters_given_in_the_middle_of_a_rollout_are_those_that_a_save_holds() -> None:
    model, given = trained(), trained(seed=5).get_parameters()
    held: dict[str, Any] = {}

    def exploit() -> None:
        model.set_parameters(given)
        held.update(model.__getstate__()["state"])

    model.learn(48, callback=Act(exploit, go_on=True), reset_num_timesteps=False)
    assert differing({key: held[key] for key in given}, given) == []


def test_environments_set_after_a_stop_in_a_rollout_are_those_that_a_save_holds() -> None:
    model = trained()
    model.learn(48, callback=Act(lambda: None, go_on=False), reset_num_timesteps=False)
    stopped = model.__getstate__()["state"]
    assert stopped["lstm_state"] is not None
    other = make_envs(normalize=True, seed=9)
    other.reset()
    model.set_env(other)
    held = model.__getstate__()["state"]
    assert held["lstm_state"] is None
    assert differing(held["env_state"], stopped["env_state"]) != []


def test_episodes_of_arrays_are_saved_and_loaded_without_what_no_file_can_hold() -> None:
    model, file = make_model(), io.BytesIO()
    model.learn(48)
    assert model.ep_info_buffer is not None
    model.ep_info_buffer.clear()
    model.ep_info_buffer.extend(
        {"r": np.array([value]), "l": np.array([4]), "t": np.float32(1), "tool": object()} for value in (4.0, 6.0)
    )
    model.save(file)
    file.seek(0)
    loaded = DistributionalPPO.load(file, env=make_envs(), device="cpu")
    assert list(loaded.ep_info_buffer or ()) == [{"r": [value], "l": [4], "t": 1.0} for value in (4.0, 6.0)]
