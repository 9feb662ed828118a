"""A file of statistics that a callback writes next to a model file does not belong to it, and learn() warns of it."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from stable_baselines3.common.callbacks import BaseCallback, CallbackList, CheckpointCallback, EveryNTimesteps
from stable_baselines3.common.vec_env import VecNormalize

from rlcore import DistributionalPPO
from tests.support.training import make_envs, make_model

WORDS = r"CheckpointCallback\(save_vecnormalize=True\) writes statistics that do not belong to the model file"


def checkpoints(folder: Path, *, statistics: bool = True) -> CheckpointCallback:
    return CheckpointCallback(5, str(folder), save_vecnormalize=statistics)


def directly(folder: Path) -> BaseCallback:
    return checkpoints(folder)


def in_a_list(folder: Path) -> BaseCallback:
    return CallbackList([checkpoints(folder, statistics=False), checkpoints(folder)])


def in_an_event(folder: Path) -> BaseCallback:
    return EveryNTimesteps(16, checkpoints(folder))


@pytest.mark.parametrize("callback", [directly, in_a_list, in_an_event])
def test_statistics_in_a_file_of_their_own_are_warned_of(
    callback: Callable[[Path], BaseCallback], tmp_path: Path
) -> None:
    model = make_model(make_envs(normalize=True))
    with pytest.warns(UserWarning, match=WORDS) as warned:
        model.learn(16, callback=callback(tmp_path))
    assert [Path(each.filename).name for each in warned] == [Path(__file__).name]


@pytest.mark.parametrize(("normalize", "statistics"), [(False, True), (True, False)])
def test_no_other_checkpoint_is_warned_of(normalize: bool, statistics: bool, tmp_path: Path) -> None:
    model = make_model(make_envs(normalize=normalize))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.learn(16, callback=CallbackList([EveryNTimesteps(16, checkpoints(tmp_path, statistics=statistics))]))
        model.learn(16, callback=None)


def test_what_the_warning_says_is_true(tmp_path: Path) -> None:
    """The statistics of the model file are older than those in the other file, and load() puts them in the env."""
    envs = make_envs(normalize=True)
    assert isinstance(envs, VecNormalize)
    model = make_model(envs)
    before = envs.obs_rms.copy()  # type: ignore[union-attr]
    with pytest.warns(UserWarning, match=WORDS):
        model.learn(16, callback=CheckpointCallback(10, str(tmp_path), save_vecnormalize=True))
    (apart,) = tmp_path.glob("*vecnormalize*.pkl")
    (file,) = tmp_path.glob("*.zip")
    later = pickle.loads(apart.read_bytes()).obs_rms  # noqa: S301 - written above
    loaded_envs = make_envs(normalize=True)
    DistributionalPPO.load(file, env=loaded_envs, device="cpu")
    assert isinstance(loaded_envs, VecNormalize)
    own = loaded_envs.obs_rms
    assert own.count < later.count  # type: ignore[union-attr]
    assert own.count > before.count  # type: ignore[union-attr]
    assert not np.array_equal(own.mean, later.mean)  # type: ignore[union-attr]
