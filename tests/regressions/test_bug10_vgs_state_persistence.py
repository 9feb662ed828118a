"""Bug 10 of document 002, by its own plan of what to check: train 2,000 steps, save, load, train 1,000 more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from stable_baselines3.common.vec_env import VecEnv

from rlcore import DistributionalPPO
from tests.support.steps import scaler_of
from tests.support.training import differing, make_envs, make_model

FIRST, MORE = 2000, 1000
SETTINGS: dict[str, Any] = {"n_steps": 125, "batch_size": 125, "n_epochs": 2, "vgs_warmup_steps": 10}
STEPS_OF_THE_SCALER = 2 * FIRST // 125
AVERAGES = ("grad_mean_ema", "grad_var_ema", "grad_norm_ema")


def envs() -> VecEnv:
    return make_envs(n_envs=8)


def averages(model: DistributionalPPO) -> dict[str, float | None]:
    return {name: getattr(scaler_of(model), name) for name in AVERAGES}


@pytest.fixture(scope="module")
def trained() -> DistributionalPPO:
    """Trained once for all that only look at it or save it."""
    model = make_model(envs(), **SETTINGS)
    model.learn(FIRST)
    return model


@pytest.fixture
def loaded(trained: DistributionalPPO, tmp_path: Path) -> DistributionalPPO:
    trained.save(tmp_path / "model.zip")
    return DistributionalPPO.load(tmp_path / "model.zip", env=envs(), device="cpu")


def test_there_is_something_to_lose(trained: DistributionalPPO) -> None:
    assert trained.num_timesteps == FIRST
    assert scaler_of(trained).step_count == STEPS_OF_THE_SCALER
    assert None not in averages(trained).values()
    assert scaler_of(trained).get_scaling_factor() < 1.0


def test_count_averages_and_what_was_measured_of_every_tensor_survive(
    trained: DistributionalPPO, loaded: DistributionalPPO
) -> None:
    assert scaler_of(loaded).step_count == STEPS_OF_THE_SCALER
    assert averages(loaded) == averages(trained)
    assert differing(scaler_of(loaded).state_dict(), scaler_of(trained).state_dict()) == []
    assert scaler_of(loaded).get_scaling_factor() == scaler_of(trained).get_scaling_factor()


def test_training_goes_on_from_there_as_if_nothing_had_been_saved(
    trained: DistributionalPPO, loaded: DistributionalPPO
) -> None:
    loaded.learn(MORE, reset_num_timesteps=False)
    assert loaded.num_timesteps == FIRST + MORE
    assert scaler_of(loaded).step_count == STEPS_OF_THE_SCALER * (FIRST + MORE) // FIRST
    before, after = averages(trained), averages(loaded)
    assert None not in after.values()
    assert all(after[name] != before[name] for name in AVERAGES)
    whole = make_model(envs(), **SETTINGS)
    whole.learn(FIRST + MORE)
    assert differing(loaded.get_parameters(), whole.get_parameters()) == []


def test_saving_and_loading_again_and_again_loses_nothing(trained: DistributionalPPO, tmp_path: Path) -> None:
    model = trained
    for cycle in range(3):
        model.save(tmp_path / f"{cycle}.zip")
        model = DistributionalPPO.load(tmp_path / f"{cycle}.zip", env=envs(), device="cpu")
    assert differing(model.get_parameters(), trained.get_parameters()) == []
