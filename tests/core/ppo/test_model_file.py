"""One file that holds a model, read without executing anything, written whole or not at all."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3.common.logger import Logger

from rlcore import (
    CheckpointError,
    DistributionalPPO,
    ResumeWarning,
    SettingError,
    StateError,
    UnknownSettingError,
    load_checkpoint,
    load_policy,
    save_checkpoint,
)
from rlcore.checkpoint.container import load_container, save_container
from rlcore.ppo.saving import continued
from tests.support.training import differing, make_envs, make_model


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    model = make_model()
    model.learn(48)
    model.save(tmp_path / "model.zip")
    return tmp_path / "model.zip"


def test_settings_can_be_changed_on_loading(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loaded = DistributionalPPO.load(saved, make_envs(), device="cpu", ent_coef=0.5, optimizer_kwargs={"lr": 0.25})
    assert (loaded.ent_coef, loaded.learning_rate, capsys.readouterr().out) == (0.5, 0.25, "")
    with pytest.raises(UnknownSettingError, match="did you mean 'ent_coef'"):
        DistributionalPPO.load(saved, device="cpu", entcoef=0.5)
    with pytest.raises(SettingError, match="optimizer_kwargs="):
        DistributionalPPO.load(saved, device="cpu", optimizer_kwargs="abc")


def test_a_seed_given_on_loading_seeds_the_generators(saved: Path) -> None:
    drawn = []
    for before in (1, 2):
        torch.manual_seed(before)
        DistributionalPPO.load(saved, device="cpu", seed=5)
        drawn.append(torch.rand(3).tolist())
    assert drawn[0] == drawn[1]


def test_a_scaler_setting_changed_on_loading_rules_over_the_file_and_keeps_the_statistics(saved: Path) -> None:
    loaded = DistributionalPPO.load(saved, device="cpu", vgs_alpha=0.75, vgs_max_normalized_variance=9.0)
    scaler = loaded.variance_gradient_scaler
    assert scaler is not None
    assert (scaler.settings.alpha, scaler.settings.max_normalized_variance) == (0.75, 9.0)
    assert (scaler.step_count, scaler.settings.warmup_steps) == (4, 3)


def test_another_estimator_on_loading_starts_fresh_says_so_once_and_trains(saved: Path) -> None:
    with pytest.warns(ResumeWarning, match="vgs_state: .* 'mean' are of no use to 'element'") as caught:
        loaded = DistributionalPPO.load(saved, env=make_envs(), device="cpu", vgs_estimator="element")
    assert len(caught) == 1
    scaler = loaded.variance_gradient_scaler
    assert scaler is not None
    assert (scaler.settings.estimator, scaler.step_count) == ("element", 0)
    loaded.learn(48, reset_num_timesteps=False)
    assert scaler.step_count == 4


def test_damaged_statistics_are_refused_on_loading_with_another_estimator(saved: Path, tmp_path: Path) -> None:
    content: Any = load_container(saved)
    content["state"]["vgs_state"]["step_count"] = -1
    save_container(tmp_path / "damaged.zip", content)
    with pytest.raises(CheckpointError, match=r"damaged\.zip: .*step_count"):
        DistributionalPPO.load(tmp_path / "damaged.zip", device="cpu", vgs_estimator="element")


def test_an_optimizer_setting_changed_on_loading_rules_over_the_file_and_keeps_the_moments(saved: Path) -> None:
    loaded = DistributionalPPO.load(saved, device="cpu", optimizer_kwargs={"sigma": 0.5, "lr": 0.25, "seed": 7})
    groups = [[group[name] for name in ("sigma", "lr", "seed")] for group in loaded.policy.optimizer.param_groups]
    assert groups == [[0.5, 0.25, 7]] * 2
    as_saved = DistributionalPPO.load(saved, device="cpu")
    states = [model.get_parameters()["policy.optimizer"]["state"] for model in (loaded, as_saved)]
    assert differing(*states) == []
    assert len(states[0]) > 0


@pytest.mark.parametrize(
    ("optimizer_class", "option"),
    [("rmsprop", {"momentum": 0.5}), ("rmsprop", {"centered": True}), ("adam", {"amsgrad": True})],
)
def test_an_option_on_loading_that_needs_other_moments_starts_fresh(
    optimizer_class: str, option: dict[str, Any], tmp_path: Path
) -> None:
    make_model(optimizer_class=optimizer_class).learn(48).save(tmp_path / "model.zip")
    with pytest.warns(ResumeWarning, match="starts fresh"):
        loaded = DistributionalPPO.load(tmp_path / "model.zip", env=make_envs(), device="cpu", optimizer_kwargs=option)
    loaded.learn(48, reset_num_timesteps=False)


def test_a_run_goes_on_without_a_setting_that_its_file_lacks_if_that_has_its_default(
    saved: Path, tmp_path: Path
) -> None:
    content: Any = load_container(saved)
    del content["own_settings"], content["settings"]["normalize_advantage"]
    save_container(tmp_path / "older.zip", content)
    with pytest.warns(ResumeWarning, match=r"has no \['normalize_advantage'\]"):
        assert continued(tmp_path / "older.zip", make_model()).num_timesteps == 48
    with pytest.raises(SettingError, match=r"normalize_advantage=False is asked for, .* was trained with True"):
        continued(tmp_path / "older.zip", make_model(normalize_advantage=False))


def test_another_optimizer_on_loading_starts_fresh_says_so_and_trains(saved: Path) -> None:
    with pytest.warns(ResumeWarning, match="'adaptive_upgd' are of no use to 'adam'"):
        loaded = DistributionalPPO.load(saved, env=make_envs(), device="cpu", optimizer_class="adam")
    loaded.learn(48, reset_num_timesteps=False)
    assert isinstance(loaded.policy.optimizer, torch.optim.Adam)


def test_a_model_trained_behind_a_normaliser_is_not_let_loose_on_raw_observations(tmp_path: Path) -> None:
    model = make_model(make_envs(normalize=True))
    model.learn(48)
    model.save(tmp_path / "model.zip")
    with pytest.raises(CheckpointError, match="VecNormalize"):
        DistributionalPPO.load(tmp_path / "model.zip", env=make_envs(), device="cpu")
    for env in (None, make_envs(normalize=True)):
        loaded = DistributionalPPO.load(tmp_path / "model.zip", env=env, device="cpu")
        with pytest.raises(StateError, match="VecNormalize"):
            loaded.set_env(make_envs())
        for _ in range(2):
            normalized: Any = make_envs(normalize=True)
            loaded.set_env(normalized)
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


SMALL: dict[str, Any] = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "seed": 0, "device": "cpu"}


class Mine(DistributionalPPO):
    """A keyword of its own, a setting that it fixes, and overridden training."""

    def __init__(self, *args: Any, foo: int = 1, bar: tuple[str, ...] = (), **kwargs: Any) -> None:
        super().__init__(*args, n_quantiles=5, **kwargs)
        self.foo, self.bar = foo, bar
        self.calls: list[str] = []

    def train(self) -> None:
        self.calls.append("train")
        super().train()

    def collect_rollouts(self, *args: Any, **kwargs: Any) -> bool:
        self.calls.append("collect")
        return super().collect_rollouts(*args, **kwargs)


class Further(Mine):
    """A subclass of a subclass."""

    def __init__(self, *args: Any, baz: float = 0.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.baz = baz


class Forgetful(DistributionalPPO):
    """Keeps nothing of what it takes."""

    def __init__(self, *args: Any, foo: int = 1, **kwargs: Any) -> None:  # noqa: ARG002
        super().__init__(*args, **kwargs)


@pytest.fixture
def saved_own(tmp_path: Path) -> Path:
    model = Mine("MlpLstmPolicy", make_envs(), foo=7, bar=("a", "b"), **SMALL)
    model.learn(48)
    assert model.calls == ["collect", "train"]
    model.save(tmp_path / "mine.zip")
    return tmp_path / "mine.zip"


def test_own_keywords_are_those_of_the_saved_model(saved_own: Path) -> None:
    loaded = Mine.load(saved_own, env=make_envs(), device="cpu")
    assert (type(loaded), loaded.foo, loaded.bar, loaded.n_steps, loaded.n_quantiles) == (Mine, 7, ("a", "b"), 16, 5)
    loaded.learn(48, reset_num_timesteps=False)
    assert (loaded.num_timesteps, loaded.calls) == (96, ["collect", "train"])
    assert load_policy(saved_own).device.type == "cpu"
    Further("MlpLstmPolicy", make_envs(), foo=7, baz=0.25, **SMALL).save(saved_own)
    further = Further.load(saved_own, device="cpu")
    assert (further.foo, further.baz) == (7, 0.25)


def test_what_a_subclass_takes_and_does_not_keep_cannot_be_saved(tmp_path: Path) -> None:
    model = Forgetful("MlpLstmPolicy", make_envs(), foo=7, **SMALL)
    with pytest.raises(AttributeError, match="'Forgetful' object has no attribute 'foo'"):
        model.save(tmp_path / "forgetful.zip")
    assert list(tmp_path.iterdir()) == []


def test_another_class_refuses_what_it_does_not_take(saved_own: Path) -> None:
    with pytest.raises(CheckpointError, match=r"mine\.zip.*'bar', 'foo'.*load the file with that class"):
        DistributionalPPO.load(saved_own, device="cpu")


class Hooked(DistributionalPPO):
    """Takes what no file can hold."""

    def __init__(self, *args: Any, hook: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.hook = hook


def test_an_own_setting_that_no_file_holds_can_be_replaced_as_it_is_loaded(tmp_path: Path) -> None:
    Hooked("MlpLstmPolicy", make_envs(), hook=lambda x: x, **SMALL).save(tmp_path / "model.zip")
    assert Hooked.load(tmp_path / "model.zip", custom_objects={"hook": abs}, device="cpu").hook is abs
    with pytest.raises(CheckpointError, match="'hook' was"):
        Hooked.load(tmp_path / "model.zip", device="cpu")


def test_own_settings_go_on_as_they_were(tmp_path: Path) -> None:
    def hook() -> None:
        pass

    path = tmp_path / "model.zip"
    Hooked("MlpLstmPolicy", make_envs(), hook=hook, **SMALL).save(path)
    now = Hooked("MlpLstmPolicy", make_envs(), hook=hook, **SMALL)
    now.set_logger(Logger(None, []))
    model = continued(path, now)
    assert (model.hook, model.logger) == (hook, now.logger)
    Hooked("MlpLstmPolicy", make_envs(), hook=1, **SMALL).save(path)
    with pytest.raises(SettingError, match="hook=2 is asked for, and what is to go on was trained with 1"):
        continued(path, Hooked("MlpLstmPolicy", make_envs(), hook=2, **SMALL))
