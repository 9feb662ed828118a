"""Settings changed in a live model: what they reach, what is refused, what stays."""

from __future__ import annotations

import io
import warnings
from typing import Any

import pytest
import torch
from stable_baselines3.common.utils import LinearSchedule

from rlcore import DistributionalPPO, PPOSettings, ResumeWarning, SettingError, UnknownSettingError
from rlcore.ppo.live import set_hyperparameters
from rlcore.ppo.settings import LIVE
from tests.support.training import differing, make_envs, make_model

CHANGES: dict[str, Any] = {
    "learning_rate": 0.02,
    "n_epochs": 1,
    "batch_size": 12,
    "gamma": 0.5,
    "gae_lambda": 0.5,
    "clip_range": 0.001,
    "clip_range_vf": 1e-4,
    "normalize_advantage": False,
    "ent_coef": 0.1,
    "ent_coef_final": 1.0,
    "ent_coef_initial": 0.2,
    "ent_coef_boost": 50.0,
    "ent_coef_plateau_explained_variance": -1e9,
    "ent_coef_plateau_patience": 100,
    "kl_penalty_target": None,
    "kl_penalty_coef": 50.0,
    "kl_penalty_max_coef": 0.3,
    "vf_coef": 2.0,
    "max_grad_norm": 0.01,
    "target_kl": 1e-9,
    "huber_kappa": 0.1,
    "critic_lr_multiplier": 3.0,
    "optimizer_kwargs": {"weight_decay": 0.5},
    "vgs_beta": 0.5,
    "vgs_alpha": 2.0,
    "vgs_eps": 1.0,
    "vgs_warmup_steps": 1000,
    "vgs_estimator": "element",
    "vgs_normalization": "second_moment",
    "vgs_min_scaling_factor": 0.95,
    "vgs_max_normalized_variance": 1e-3,
}

UNSEEN = {"ent_coef_min", "kl_penalty_min_coef", "verbose", "tensorboard_log"}
"""Floors do nothing while what they bound lies above; two settings are of the output alone."""
ADAPTIVE: dict[str, Any] = {
    "ent_coef": 0.01,
    "ent_coef_boost": 2.0,
    "ent_coef_plateau_explained_variance": 1.0,
    "ent_coef_plateau_patience": 1,
    "kl_penalty_target": 1e-10,
}


@pytest.fixture(scope="module")
def saved() -> bytes:
    model = make_model(learning_rate=0.01, vgs_alpha=1.0, **ADAPTIVE)
    model.learn(96)
    file = io.BytesIO()
    model.save(file)
    return file.getvalue()


def again(saved: bytes) -> DistributionalPPO:
    return DistributionalPPO.load(io.BytesIO(saved), env=make_envs(), device="cpu")


@pytest.fixture(scope="module")
def unchanged(saved: bytes) -> dict[str, Any]:
    model = again(saved)
    model.learn(48, reset_num_timesteps=False)
    return model.get_parameters()["policy"]  # type: ignore[no-any-return]


def test_every_live_setting_is_tried_and_every_other_is_refused(saved: bytes) -> None:
    assert set(CHANGES) | UNSEEN == LIVE
    model = again(saved)
    for name in set(PPOSettings.model_fields) - LIVE:
        with pytest.raises(SettingError, match="cannot change in a model that exists") as caught:
            set_hyperparameters(model, {name: getattr(model, name)})
        assert caught.value.setting == name


@pytest.mark.filterwarnings("ignore:vgs_state. the gradient statistics")
@pytest.mark.parametrize("name", sorted(CHANGES))
def test_every_live_setting_changes_what_the_next_update_does(
    name: str, saved: bytes, unchanged: dict[str, Any]
) -> None:
    model = again(saved)
    set_hyperparameters(model, {name: CHANGES[name]})
    model.learn(48, reset_num_timesteps=False)
    assert differing(unchanged, model.get_parameters()["policy"]) != []


def test_a_schedule_rules_from_where_training_stands(saved: bytes) -> None:
    model = again(saved)
    model._current_progress_remaining = 0.5
    set_hyperparameters(model, {"learning_rate": LinearSchedule(0.02, 0.0, 1.0), "critic_lr_multiplier": 2.0})
    assert [group["lr"] for group in model.policy.optimizer.param_groups] == pytest.approx([0.01, 0.02])


def test_an_option_that_needs_moments_of_its_own_starts_the_optimizer_fresh() -> None:
    model = make_model(optimizer_class="adam").learn(48)
    with pytest.warns(ResumeWarning, match="max_exp_avg_sq"):
        set_hyperparameters(model, {"amsgrad": True})
    assert model.policy.optimizer.state_dict()["state"] == {}
    model.learn(48, reset_num_timesteps=False)


def test_floors_hold_at_once(saved: bytes) -> None:
    model = again(saved)
    set_hyperparameters(model, {"ent_coef_final": 0.0, "ent_coef_boost": None})
    model.kl_penalty.restore({"coefficient": 1e-3, "last_kl": None})
    assert (model.entropy_schedule.coefficient(0.0), model.kl_penalty.coefficient) == (0.0, 1e-3)
    set_hyperparameters(model, {"ent_coef_min": 0.005, "kl_penalty_min_coef": 0.1})
    assert (model.entropy_schedule.coefficient(0.0), model.kl_penalty.coefficient) == (0.005, 0.1)


def test_another_start_of_the_penalty_is_where_it_goes_on_from(saved: bytes) -> None:
    model = again(saved)
    adapted, measured = model.kl_penalty.coefficient, model.kl_penalty.last_kl
    assert adapted != model.kl_penalty_coef
    set_hyperparameters(model, {"kl_penalty_coef": model.kl_penalty_coef})
    assert model.kl_penalty.coefficient == adapted
    set_hyperparameters(model, {"kl_penalty_coef": 0.05})
    assert (model.kl_penalty.coefficient, model.kl_penalty.last_kl) == (0.05, measured)


def test_a_change_to_what_is_already_so_changes_nothing(saved: bytes, unchanged: dict[str, Any]) -> None:
    model = again(saved)
    set_hyperparameters(model, {name: getattr(model, name) for name in LIVE})
    model.learn(48, reset_num_timesteps=False)
    assert differing(unchanged, model.get_parameters()["policy"]) == []


def test_a_saved_model_has_the_changed_settings(saved: bytes) -> None:
    model, file = again(saved), io.BytesIO()
    set_hyperparameters(model, {"lr": 0.02, "sigma": 0.5, "clip_range": 0.1, "vgs_alpha": 3.0})
    model.save(file)
    loaded = again(file.getvalue())
    assert (loaded.learning_rate, loaded.optimizer_kwargs) == (0.02, {"sigma": 0.5})
    assert (loaded.clip_range(1.0), loaded.vgs_alpha) == (0.1, 3.0)
    assert [(group["lr"], group["sigma"]) for group in loaded.policy.optimizer.param_groups] == [(0.02, 0.5)] * 2


def test_an_optimizer_built_later_has_the_changed_options(saved: bytes) -> None:
    model = again(saved)
    set_hyperparameters(model, {"sigma": 0.5, "critic_lr_multiplier": 2.0, "lr": 0.01})
    model.policy.action_net = torch.nn.Linear(8, 2)
    model.rebuild_optimizer()
    groups = [(group["lr"], group["sigma"]) for group in model.policy.optimizer.param_groups]
    assert groups == [(0.01, 0.5), (0.02, 0.5)]


@pytest.mark.parametrize(
    ("hyperparams", "error", "message"),
    [
        ({"gamma": 0.5, "lerning_rate": 0.1}, UnknownSettingError, "did you mean 'learning_rate'"),
        ({"gamma": 0.5, "sigm": 0.1}, UnknownSettingError, "did you mean 'sigma'"),
        ({"gamma": 0.5, "sigma": float("nan")}, SettingError, "sigma"),
        ({"gamma": 0.5, "beta_utility": 1.0}, SettingError, "beta_utility"),
        ({"gamma": 0.5, "clip_range": lambda remaining: remaining - 1.7}, SettingError, "remaining progress 1"),
        ({"gamma": 0.5, "n_quantiles": 4}, SettingError, "it shapes the network"),
        ({"optimizer_kwargs": "abc", "sigma": 0.1}, SettingError, "optimizer_kwargs='abc'"),
    ],
)
def test_one_value_that_cannot_be_used_leaves_all_as_they_were(
    saved: bytes, hyperparams: dict[str, Any], error: type[Exception], message: str
) -> None:
    model = again(saved)
    model._current_progress_remaining = 0.5
    before = {**model.__getstate__(), "buffer": model.rollout_buffer.gamma}
    with pytest.raises(error, match=message):
        set_hyperparameters(model, hyperparams)
    assert differing(before, {**model.__getstate__(), "buffer": model.rollout_buffer.gamma}) == []


@pytest.mark.parametrize("steps", [4, 0])
def test_another_estimator_starts_fresh_with_a_warning_of_what_it_had_measured(steps: int) -> None:
    model = make_model()
    model.learn(12 * steps)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        set_hyperparameters(model, {"vgs_estimator": "element"})
    assert [f"statistics of {steps} steps start fresh" in str(each.message) for each in caught] == [True] * (steps > 0)
    assert model.variance_gradient_scaler is not None
    assert model.variance_gradient_scaler.settings.estimator == "element"
    assert model.variance_gradient_scaler.step_count == 0


@pytest.mark.parametrize("change", [{"amsgrad": True}, {"vgs_estimator": "element"}])
def test_where_warnings_are_errors_what_would_start_fresh_changes_nothing(change: dict[str, Any]) -> None:
    model = make_model(optimizer_class="adam")
    model.learn(48)
    before = [model.get_parameters(), model.__getstate__()["settings"], model.policy.optimizer.state_dict()]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResumeWarning)
        with pytest.raises(ResumeWarning, match="fresh"):
            set_hyperparameters(model, {**change, "learning_rate": 1e-2, "huber_kappa": 2.0, "gamma": 0.5})
    after = [model.get_parameters(), model.__getstate__()["settings"], model.policy.optimizer.state_dict()]
    assert differing(before, after) == []
    assert (model.policy.values.huber_kappa, model.rollout_buffer.gamma) == (1.0, 0.99)  # type: ignore[attr-defined]


def test_the_noise_of_an_optimizer_keeps_its_seed() -> None:
    model, other = make_model(optimizer_kwargs={"seed": 3}), make_model()
    for each in (model, other):
        with pytest.raises(SettingError, match=r"optimizer_kwargs\['seed'\]=5 cannot change in a model that exists"):
            set_hyperparameters(each, {"optimizer_kwargs": {"sigma": 0.5, "seed": 5}})
        assert "sigma" not in each.optimizer_kwargs
    for same in ({"sigma": 0.5}, {"sigma": 0.5, "seed": 3}):
        set_hyperparameters(model, {"optimizer_kwargs": same})
        assert model.optimizer_kwargs == {"sigma": 0.5, "seed": 3}
    set_hyperparameters(other, {"optimizer_kwargs": {"sigma": 0.5, "seed": None}})
    assert other.optimizer_kwargs == {"sigma": 0.5}
    assert {group["seed"] for group in model.policy.optimizer.param_groups} == {3}
