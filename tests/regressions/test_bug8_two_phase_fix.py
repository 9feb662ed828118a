"""Bug 8 of document 002: what is saved can be loaded, in two phases, with every setting that the model had."""

from __future__ import annotations

import pickle
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from stable_baselines3.common.logger import configure
from stable_baselines3.common.utils import LinearSchedule

from rlcore import CheckpointError, DistributionalPPO, PPOSettings
from tests.support.training import SMALL, differing, make_envs, make_model

WHILE = (1.0, 0.75, 0.5, 0.0)
CHANGED: dict[str, Any] = {
    "learning_rate": LinearSchedule(2e-3, 1e-4, 1.0),
    "clip_range": LinearSchedule(0.3, 0.1, 1.0),
    "clip_range_vf": LinearSchedule(0.4, 0.2, 0.5),
    "critic_lr_multiplier": 3.0,
    "n_steps": 8,
    "batch_size": 12,
    "n_epochs": 3,
    "gamma": 0.9,
    "gae_lambda": 0.8,
    "normalize_advantage": False,
    "ent_coef": 0.01,
    "vf_coef": 0.25,
    "max_grad_norm": 0.75,
    "target_kl": 0.5,
    "optimizer_class": "upgd",
    "optimizer_kwargs": {"sigma": 0.002, "beta_utility": 0.9},
    "n_critics": 1,
    "n_quantiles": 5,
    "huber_kappa": 0.5,
    "vgs_beta": 0.9,
    "vgs_alpha": 0.2,
    "vgs_eps": 1e-6,
    "vgs_warmup_steps": 2,
    "vgs_estimator": "element",
    "vgs_normalization": "second_moment",
    "vgs_min_scaling_factor": 0.2,
    "vgs_max_normalized_variance": 20.0,
    "stats_window_size": 7,
    "policy_kwargs": {"lstm_hidden_size": 6, "net_arch": {"pi": [7], "vf": [5]}},
    "seed": 5,
}
"""Settings that are none of the defaults, where there is a choice."""


def rates(model: DistributionalPPO) -> dict[str, float]:
    return {group["name"]: group["lr"] for group in model.policy.optimizer.param_groups}


def shown(value: object) -> object:
    """A setting in a form that can be compared: a schedule by what it gives."""
    return [value(x) for x in WHILE] if callable(value) and not isinstance(value, type) else value


def settings_of(model: DistributionalPPO) -> dict[str, object]:
    return {name: shown(getattr(model, name)) for name in PPOSettings.model_fields}


def travel(model: DistributionalPPO, way: str, folder: Path) -> DistributionalPPO:
    if way == "save":
        model.save(folder / "model.zip")
        return DistributionalPPO.load(folder / "model.zip", env=make_envs(), device="cpu")
    copied: DistributionalPPO = pickle.loads(pickle.dumps(model))  # noqa: S301
    copied.set_env(make_envs())
    return copied


@pytest.mark.parametrize("way", ["save", "pickle"])
def test_a_loaded_model_trains_with_the_settings_of_the_saved_one(way: str, tmp_path: Path) -> None:
    model = make_model(**CHANGED)
    model.learn(48)
    loaded = travel(model, way, tmp_path)
    assert settings_of(loaded) == settings_of(model)
    assert rates(loaded) == rates(model)
    loaded.learn(48, reset_num_timesteps=False)
    assert rates(loaded) == pytest.approx({"actor": 1e-4, "critic": 3e-4})
    assert loaded.clip_range(0.5) == pytest.approx(0.2)


def test_what_this_file_changes_is_no_default() -> None:
    for name, value in CHANGED.items():
        assert value != PPOSettings.model_fields[name].default, name


@pytest.mark.parametrize("way", ["save", "pickle"])
def test_a_model_with_an_open_log_is_saved_without_it(way: str, tmp_path: Path) -> None:
    model = make_model()
    logger = configure(str(tmp_path / "log"), ["csv", "log"])
    with closing(logger):
        model.set_logger(logger)
        model.learn(48)
        assert differing(travel(model, way, tmp_path).get_parameters(), model.get_parameters()) == []


def test_a_clip_range_that_closes_over_an_open_file_is_asked_for_by_name(tmp_path: Path) -> None:
    with (tmp_path / "clip.log").open("w") as log:

        def logged(remaining: float) -> float:
            log.write(f"{remaining}\n")
            return 0.1 + 0.1 * remaining

        make_model(clip_range=logged).save(tmp_path / "model.zip")
        with pytest.raises(CheckpointError, match=r"'clip_range' was .*custom_objects=\{'clip_range'"):
            DistributionalPPO.load(tmp_path / "model.zip", device="cpu")
        given = {"clip_range": logged}
        loaded = DistributionalPPO.load(tmp_path / "model.zip", device="cpu", custom_objects=given)
        assert [loaded.clip_range(x) for x in (1.0, 0.0)] == pytest.approx([0.2, 0.1])


def test_two_phases_build_the_model_that_one_phase_builds() -> None:
    whole = make_model(make_envs(), **CHANGED)
    whole.learn(48)
    halves = DistributionalPPO("MlpLstmPolicy", make_envs(), _init_setup_model=False, **{**SMALL, **CHANGED})
    assert not hasattr(halves, "policy")
    halves._setup_model()
    halves.learn(48)
    assert settings_of(halves) == settings_of(whole)
    assert differing(halves.get_parameters(), whole.get_parameters()) == []
