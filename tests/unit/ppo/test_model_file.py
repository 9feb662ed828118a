"""One file that holds a model, read without executing anything, written whole or not at all."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import VecNormalize
from torch import nn

from rlcore import (
    CheckpointError,
    DistributionalPPO,
    ResumeWarning,
    SettingError,
    StateError,
    UnknownSettingError,
    load_checkpoint,
    save_checkpoint,
)
from rlcore.checkpoint import load_container, save_container
from tests.support.training import differing, make_envs, make_model


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    model = make_model()
    model.learn(48)
    model.save(tmp_path / "model.zip")
    return tmp_path / "model.zip"


def test_settings_of_every_kind_survive(tmp_path: Path) -> None:
    policy_kwargs = {"lstm_hidden_size": 8, "net_arch": {"pi": [5], "vf": []}, "activation_fn": nn.ReLU}
    model = make_model(
        policy_kwargs=policy_kwargs,
        learning_rate=LinearSchedule(1e-3, 1e-4, 0.5),
        clip_range=0.15,
        optimizer_class=torch.optim.Adam,
        optimizer_kwargs={"betas": (0.8, 0.9)},
        ent_coef=0.1,
        target_kl=0.5,
    )
    model.save(tmp_path / "model")
    loaded = DistributionalPPO.load(tmp_path / "model", device="cpu")
    for name, value in model.__getstate__()["settings"].items():
        kept = getattr(loaded, name)
        if callable(value) and not isinstance(value, type):
            assert [kept(x) for x in (1.0, 0.7, 0.1)] == [value(x) for x in (1.0, 0.7, 0.1)], name
        else:
            assert kept == value, name
    assert loaded.observation_space == model.observation_space
    assert loaded.action_space == model.action_space


def test_zip_is_added_to_a_name_without_ending_and_found_again(tmp_path: Path) -> None:
    make_model().save(str(tmp_path / "run"))
    assert [path.name for path in tmp_path.iterdir()] == ["run.zip"]
    assert DistributionalPPO.load(str(tmp_path / "run"), device="cpu").num_timesteps == 0


def test_loading_and_saving_again_loses_nothing_even_without_an_environment(tmp_path: Path) -> None:
    model = make_model(make_envs(normalize=True))
    model.learn(96)
    model.save(tmp_path / "first.zip")
    DistributionalPPO.load(tmp_path / "first.zip", device="cpu").save(tmp_path / "second.zip")
    first, second = (load_container(tmp_path / name) for name in ("first.zip", "second.zip"))
    assert differing(first, second) == []


@pytest.mark.parametrize("change", [{"return_scale": None}, {"return_scale": "snapshot"}], ids=str)
def test_a_setting_that_would_change_what_values_mean_is_refused(change: dict[str, Any], saved: Path) -> None:
    with pytest.raises(SettingError, match="its critics would mean other returns") as caught:
        DistributionalPPO.load(saved, device="cpu", **change)
    assert {caught.value.setting} == set(change)


def test_settings_can_be_changed_on_loading(saved: Path) -> None:
    loaded = DistributionalPPO.load(saved, device="cpu", ent_coef=0.5, optimizer_kwargs={"lr": 0.25})
    assert (loaded.ent_coef, loaded.learning_rate) == (0.5, 0.25)
    with pytest.raises(UnknownSettingError, match="did you mean 'ent_coef'"):
        DistributionalPPO.load(saved, device="cpu", entcoef=0.5)
    with pytest.raises(SettingError, match="optimizer_kwargs="):
        DistributionalPPO.load(saved, device="cpu", optimizer_kwargs="abc")


def test_a_scaler_setting_changed_on_loading_rules_over_the_file_and_keeps_the_statistics(saved: Path) -> None:
    loaded = DistributionalPPO.load(saved, device="cpu", vgs_alpha=0.75, vgs_max_normalized_variance=9.0)
    scaler = loaded.variance_gradient_scaler
    assert scaler is not None
    assert (scaler.settings.alpha, scaler.settings.max_normalized_variance) == (0.75, 9.0)
    assert (scaler.step_count, scaler.settings.warmup_steps) == (4, 3)


def test_another_estimator_on_loading_starts_the_scaler_fresh_and_says_so(saved: Path) -> None:
    with pytest.warns(ResumeWarning, match="vgs_state"):
        loaded = DistributionalPPO.load(saved, device="cpu", vgs_estimator="element")
    assert loaded.variance_gradient_scaler is not None
    assert loaded.variance_gradient_scaler.settings.estimator == "element"
    assert DistributionalPPO.load(saved, device="cpu", vgs_estimator="mean").variance_gradient_scaler.step_count == 4  # type: ignore[union-attr]


def test_an_optimizer_setting_changed_on_loading_rules_over_the_file_and_keeps_the_moments(saved: Path) -> None:
    loaded = DistributionalPPO.load(saved, device="cpu", optimizer_kwargs={"sigma": 0.5, "lr": 0.25})
    assert [(group["sigma"], group["lr"]) for group in loaded.policy.optimizer.param_groups] == [(0.5, 0.25)] * 2
    as_saved = DistributionalPPO.load(saved, device="cpu")
    states = [model.get_parameters()["policy.optimizer"]["state"] for model in (loaded, as_saved)]
    assert differing(*states) == []
    assert len(states[0]) > 0


def test_another_optimizer_on_loading_starts_fresh_says_so_and_trains(saved: Path) -> None:
    with pytest.warns(ResumeWarning, match="'adaptive_upgd' are of no use to 'adam'"):
        loaded = DistributionalPPO.load(saved, env=make_envs(), device="cpu", optimizer_class="adam")
    loaded.learn(48, reset_num_timesteps=False)
    assert isinstance(loaded.policy.optimizer, torch.optim.Adam)


@pytest.mark.parametrize(
    ("saved_with", "changes", "rate"),
    [
        ({"optimizer_class": "adaptive_upgd"}, {"optimizer_class": "adam"}, 3e-4),
        ({"optimizer_class": "adam"}, {"optimizer_class": "adaptive_upgd"}, 2e-3),
        ({"optimizer_class": "adam", "learning_rate": 0.01}, {"optimizer_class": "adaptive_upgd"}, 0.01),
        ({"optimizer_class": "adam"}, {"optimizer_class": "adaptive_upgd", "learning_rate": 0.02}, 0.02),
        ({"optimizer_class": "adam", "learning_rate": 2e-3}, {"n_epochs": 1}, 2e-3),
    ],
)
def test_another_optimizer_on_loading_brings_its_rate_unless_one_was_chosen(
    saved_with: dict[str, Any], changes: dict[str, Any], rate: float, tmp_path: Path
) -> None:
    make_model(**saved_with).save(tmp_path / "model.zip")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResumeWarning)
        loaded = DistributionalPPO.load(tmp_path / "model.zip", device="cpu", **changes)
    assert loaded.lr_schedule(1.0) == rate
    assert {group["lr"] for group in loaded.policy.optimizer.param_groups} == {rate}


def test_a_model_trained_behind_a_normaliser_is_not_let_loose_on_raw_observations(tmp_path: Path) -> None:
    model = make_model(make_envs(normalize=True))
    model.learn(48)
    model.save(tmp_path / "model.zip")
    with pytest.raises(CheckpointError, match="VecNormalize"):
        DistributionalPPO.load(tmp_path / "model.zip", env=make_envs(), device="cpu")
    loaded = DistributionalPPO.load(tmp_path / "model.zip", device="cpu")
    with pytest.raises(StateError, match="VecNormalize"):
        loaded.set_env(make_envs())
    normalized = make_envs(normalize=True)
    loaded.set_env(normalized)
    assert isinstance(normalized, VecNormalize)
    assert np.array_equal(normalized.obs_rms.mean, model.get_vec_normalize_env().obs_rms.mean)  # type: ignore[union-attr]


@pytest.mark.parametrize("normalize", [False, True])
def test_after_force_reset_training_goes_on_from_a_reset_without_a_warning(normalize: bool, tmp_path: Path) -> None:
    model = make_model(make_envs(normalize=normalize))
    model.learn(48)
    model.save(tmp_path / "model.zip")
    envs = make_envs(normalize=normalize)
    loaded = DistributionalPPO.load(tmp_path / "model.zip", env=envs, device="cpu", force_reset=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded.learn(48, reset_num_timesteps=False)
    assert loaded.num_timesteps == 96


def changed(**fields: Any) -> Any:
    def change(content: dict[str, Any]) -> dict[str, Any]:
        return {**content, **fields}

    return change


FOREIGN: dict[str, Any] = {
    "a field missing": lambda content: {k: v for k, v in content.items() if k != "n_envs"},
    "a field too many": changed(extra=1),
    "another algorithm": changed(algorithm="SAC"),
    "settings of a subclass in a list": changed(own_settings=[1]),
    "another version": changed(format_version="model_v9"),
    "settings of the wrong type": changed(settings=3),
    "no environments": changed(n_envs=0),
    "a bool for a number": changed(n_envs=True),
    "an unknown setting": lambda content: {**content, "settings": {**content["settings"], "vgs_gamma": 1}},
    "a setting of a wrong value": lambda content: {**content, "settings": {**content["settings"], "n_steps": 0}},
    "a policy class that is none": lambda content: {**content, "policy_class": content["settings"]["policy_kwargs"]},
    "another class for the policy": lambda content: {
        **content,
        "policy_class": {"__kind__": "class", "name": "torch.nn.Tanh"},
    },
    "no observations": changed(observation_space=None),
    "a number for the actions": changed(action_space=3),
    "more steps than fit": lambda content: {**content, "settings": {**content["settings"], "n_steps": 10**13}},
    "an unknown kind of value": changed(observation_space={"__kind__": "code", "text": "1"}),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_a_file_with_other_content_raises_one_clear_error_with_its_name(case: str, saved: Path) -> None:
    save_container(saved, FOREIGN[case](load_container(saved)))
    with pytest.raises(CheckpointError) as caught:
        DistributionalPPO.load(saved, device="cpu")
    assert str(saved) in str(caught.value)


def test_a_checkpoint_is_no_model_file_and_the_other_way_round(saved: Path, tmp_path: Path) -> None:
    model = DistributionalPPO.load(saved, device="cpu")
    save_checkpoint(tmp_path / "v2.pt", model.get_parameters(), step=1, performance=0.0)
    with pytest.raises(CheckpointError, match=r"read by set_parameters\(path\)"):
        DistributionalPPO.load(tmp_path / "v2.pt", device="cpu")
    with pytest.raises(CheckpointError, match=r"DistributionalPPO\.load"):
        load_checkpoint(saved)


def test_the_folder_is_made_as_sb3_makes_it(saved: Path, tmp_path: Path) -> None:
    model = DistributionalPPO.load(saved, device="cpu")
    model.save(tmp_path / "a" / "b" / "model")
    assert (tmp_path / "a" / "b" / "model.zip").is_file()
    with pytest.raises(CheckpointError, match="cannot be written"):
        model.save(saved / "model.zip")


@pytest.mark.parametrize("error", [MemoryError("no more"), torch.OutOfMemoryError("CUDA out of memory")])
def test_a_machine_without_memory_does_not_make_a_file_damaged(
    error: Exception, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: DistributionalPPO) -> None:
        raise error

    monkeypatch.setattr(DistributionalPPO, "_setup_model", full)
    with pytest.raises(CheckpointError, match=r"model\.zip: asks for a model larger than this machine's memory"):
        DistributionalPPO.load(saved, device="cpu")
