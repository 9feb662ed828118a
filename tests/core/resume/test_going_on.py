"""What happens between a load and the next rollout leaves no trace in the training."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise
from stable_baselines3.common.vec_env import VecNormalize

from rlcore.errors import CheckpointError
from rlcore.resume import SaveExactly, callback, continue_learning, load_exact, newest_exact, save_exact
from rlcore.resume.callback import path_of_step, saved_steps
from tests.core.resume.small_models import net, ppo, sac
from tests.support.environments import make_vec
from tests.support.exact_runs import StopAt, differences, finished
from tests.support.training import make_model


class Draws(BaseCallback):
    """Draws from every generator that trains when the training begins, as an evaluation may."""

    def _on_training_start(self) -> None:
        assert random.random() + np.random.rand() + float(torch.rand(())) >= 0
        if isinstance(self.model, DQN):
            self.model.action_space.sample()

    def _on_step(self) -> bool:
        return True


def dqn(env: Any) -> DQN:
    return DQN("MlpPolicy", env, **net(), buffer_size=40, learning_starts=40, batch_size=4)


@pytest.mark.parametrize("make", [ppo, dqn, make_model])
def test_draws_before_the_training_goes_on_change_nothing(make: Callable[[Any], Any], tmp_path: Path) -> None:
    model = make(make_vec())
    model.learn(64, callback=[SaveExactly(tmp_path, every=16, keep=9), Draws()])
    expected = finished(model)
    *steps, _ = saved_steps(tmp_path, "exact")
    for step in steps:
        loaded = load_exact(path_of_step(tmp_path, "exact", step), make_vec(), device="cpu")
        make_vec_env("CartPole-v1", 2)  # draws a seed
        continue_learning(loaded, Draws())
        assert (step, differences(finished(loaded), expected)) == (step, [])
    assert steps


def evaluate(model: Any) -> None:
    evaluate_policy(model, model.get_env(), 2, warn=False)


@pytest.mark.parametrize("use", [evaluate, lambda model: model.env.reset(), lambda model: model.set_env(model.env)])
@pytest.mark.parametrize("make", [ppo, dqn, make_model])
def test_a_use_of_the_environments_before_the_training_goes_on_changes_nothing(
    make: Callable[[Any], Any], use: Callable[[Any], object], tmp_path: Path
) -> None:
    expected = finished(make(VecNormalize(make_vec())).learn(64, callback=SaveExactly(tmp_path, every=32, keep=9)))
    path = path_of_step(tmp_path, "exact", saved_steps(tmp_path, "exact")[0])
    loaded = load_exact(path, VecNormalize(make_vec()), device="cpu")
    use(loaded)
    assert differences(finished(continue_learning(loaded)), expected) == []


@pytest.mark.parametrize("make", [ppo, make_model])
def test_a_training_that_begins_again_does_so_as_without_a_load(make: Callable[[Any], Any], tmp_path: Path) -> None:
    model = make(make_vec()).learn(64)
    save_exact(model, tmp_path / "first.zip")
    expected = finished(model.learn(64))
    assert differences(finished(load_exact(tmp_path / "first.zip", make_vec(), device="cpu").learn(64)), expected) == []


@pytest.mark.parametrize("noise", [NormalActionNoise, OrnsteinUhlenbeckActionNoise])
def test_noise_that_was_not_used_yet_is_made_for_each_environment(noise: Any, tmp_path: Path) -> None:
    model = sac(action_noise=noise(np.zeros(1), np.full(1, 0.1), dtype=np.float64))
    save_exact(model, tmp_path / "unbegun.zip")
    expected = finished(model.learn(32))
    loaded = load_exact(tmp_path / "unbegun.zip", make_vec("Pendulum-v1"))
    assert differences(finished(continue_learning(loaded, total_timesteps=32)), expected) == []


@pytest.mark.parametrize("as_list", [False, True])
def test_what_is_called_in_each_step_may_be_a_function_or_a_list(as_list: bool) -> None:
    seen = []

    def count(*_: Any) -> bool:
        seen.append(1)
        return True

    continue_learning(ppo(), [count, StopAt(16)] if as_list else count, total_timesteps=1)
    assert len(seen) == 8  # steps of two environments in one rollout


class OneNoise(BaseCallback):
    """Gives all environments one noise in the middle of a training."""

    def _on_step(self) -> bool:
        self.model.action_noise = NormalActionNoise(np.zeros(1), np.full(1, 0.1))  # type: ignore[attr-defined]
        return True


def test_one_noise_for_all_environments_is_refused_while_they_train(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"one action noise for all environments; give VectorizedActionNoise\("):
        sac().learn(32, callback=[SaveExactly(tmp_path, every=16), OneNoise()])


def test_a_total_may_be_a_float_and_a_model_a_copy(tmp_path: Path) -> None:
    whole = copy.deepcopy(sac()).learn(40.0)  # type: ignore[arg-type]
    whole._total_timesteps = 40
    expected = finished(whole)
    copy.deepcopy(sac()).learn(40.0, callback=SaveExactly(tmp_path, every=20))  # type: ignore[arg-type]
    loaded = load_exact(path_of_step(tmp_path, "exact", 20), make_vec("Pendulum-v1"))
    assert differences(finished(continue_learning(loaded)), expected) == []


def test_a_buffer_that_grows_too_large_for_a_file_is_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlcore.resume.file.MAX_BYTES", 1000)
    sac().learn(8, callback=SaveExactly(tmp_path / "short", every=20))
    with pytest.raises(CheckpointError, match=r"the replay buffer takes 0 MiB.*give a smaller buffer_size"):
        sac().learn(100, callback=SaveExactly(tmp_path / "long", every=20))


def test_weights_of_another_dtype_are_refused(tmp_path: Path) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        save_exact(ppo(), tmp_path / "double.zip")
    finally:
        torch.set_default_dtype(torch.float32)
    with pytest.raises(CheckpointError, match=r"the weights are torch\.float64, and a new model's torch\.float32; set"):
        load_exact(tmp_path / "double.zip", make_vec())


def test_the_newest_file_is_looked_for_again_if_it_was_replaced_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ppo().learn(32, callback=SaveExactly(tmp_path, every=16, keep=1))
    read = callback.read_model_file

    def replaced(path: Path, **how: Any) -> Any:
        monkeypatch.setattr(callback, "read_model_file", read)
        path.rename(tmp_path / "exact_48.zip")
        return read(path, **how)

    monkeypatch.setattr(callback, "read_model_file", replaced)
    assert newest_exact(tmp_path) == tmp_path / "exact_48.zip"
