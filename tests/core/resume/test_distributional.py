"""DistributionalPPO is saved and continued by the functions that serve the algorithms of Stable-Baselines3."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import SubprocVecEnv, VecNormalize

from rlcore import CheckpointError, DistributionalPPO
from rlcore.checkpoint.container import load_container, save_container
from rlcore.resume import SaveExactly, continue_learning, file, load_exact, newest_exact, save_exact
from tests.support.environments import make_vec
from tests.support.exact_runs import StopAt
from tests.support.training import differing, make_envs, make_model


class Subclass(DistributionalPPO):
    """One of the user's."""


def state_of(model: Any) -> Any:
    state = model.__getstate__()["state"]
    for episode in state["progress_state"]["ep_info_buffer"]:
        del episode["t"]  # a clock
    return state


def test_an_interrupted_run_ends_as_the_whole_one_does(tmp_path: Path) -> None:
    whole = make_model(make_envs(normalize=True), optimizer_class="adam")
    whole.learn(192)
    expected = state_of(whole)

    cut = make_model(make_envs(normalize=True), optimizer_class="adam")
    cut.learn(192, callback=[SaveExactly(tmp_path, every=48), StopAt(120)])
    path = newest_exact(tmp_path)
    assert path is not None
    model = load_exact(path, make_envs(normalize=True), algorithm=DistributionalPPO, device="cpu")
    assert model.num_timesteps == 96
    continue_learning(model)

    assert model.num_timesteps == 192
    assert differing(expected, state_of(model)) == []


def test_a_rollout_that_was_left_is_saved_from_its_beginning(tmp_path: Path) -> None:
    expected = state_of(make_model(make_envs()).learn(96))
    cut = make_model(make_envs())
    cut.learn(96, callback=StopAt(60))
    save_exact(cut, tmp_path / "left.zip")

    model = load_exact(tmp_path / "left.zip", make_envs(), device="cpu")

    assert differing(expected, state_of(continue_learning(model))) == []


def test_the_file_is_that_of_save_and_a_subclass_is_named_at_load(tmp_path: Path) -> None:
    model = Subclass("MlpLstmPolicy", make_envs(), n_steps=4, batch_size=12, device="cpu", seed=0)
    model.learn(12)
    save_exact(model, tmp_path / "exact")
    assert differing(model.get_parameters(), DistributionalPPO.load(tmp_path / "exact.zip").get_parameters()) == []
    assert type(load_exact(tmp_path / "exact", make_envs(), algorithm=Subclass)) is Subclass


def test_a_file_is_read_once_and_may_be_replaced_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "exact.zip"
    save_exact(make_model().learn(48), path)
    read = file.read_model_file

    def read_and_replaced(path: Path, **how: Any) -> Any:
        record = read(path, **how)
        save_exact(make_model().learn(96), path)
        return record

    monkeypatch.setattr(file, "read_model_file", read_and_replaced)
    assert load_exact(path, make_envs()).num_timesteps == 48


def test_another_algorithm_or_an_environment_without_state_is_refused(tmp_path: Path) -> None:
    model = make_model()
    model.learn(48)
    save_exact(model, tmp_path / "exact.zip")
    with pytest.raises(CheckpointError, match=r"is of 'DistributionalPPO', and algorithm=.*PPO"):
        load_exact(tmp_path / "exact.zip", make_envs(), algorithm=PPO)
    with pytest.raises(
        CheckpointError, match=r"could not continue exactly in this .*ResumableEnv is not its outermost wrapper"
    ):
        load_exact(tmp_path / "exact.zip", make_vec_env("CartPole-v1", 3))


def test_another_vec_env_whose_rewards_round_differently_is_refused(tmp_path: Path) -> None:
    save_exact(make_model(make_envs(normalize=True)).learn(48), tmp_path / "exact.zip")
    workers = VecNormalize(make_vec(n_envs=3, vec_env_cls=SubprocVecEnv, vec_env_kwargs={"start_method": "fork"}))
    with pytest.raises(CheckpointError, match="had 'VecNormalize of DummyVecEnv', and this is VecNormalize of Subproc"):
        load_exact(tmp_path / "exact.zip", workers, device="cpu")
    workers.close()


def test_a_file_without_generators_is_refused(tmp_path: Path) -> None:
    save_exact(make_model(), tmp_path / "exact.zip")
    content: Any = load_container(tmp_path / "exact.zip")
    content["state"]["rng_state"] = None
    save_container(tmp_path / "changed.zip", content)
    with pytest.raises(CheckpointError, match=r"changed\.zip: .*the file has no state of the random generators"):
        load_exact(tmp_path / "changed.zip", make_envs(), device="cpu")
