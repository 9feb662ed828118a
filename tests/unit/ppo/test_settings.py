"""Every level refuses what it does not know, says where it belongs, and takes no text for a bool."""

from __future__ import annotations

import inspect
import pydoc
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from rlcore import DistributionalPPO, PPOSettings, SettingError, UnknownSettingError
from rlcore.ppo.settings import resolve_settings
from tests.support.training import make_model

UNKNOWN = {
    "twins under another name": ({"use_twin_critics": True}, "use n_critics=2"),
    "scaling under another name": ({"vgs_enabled": True}, "use variance_gradient_scaling"),
    "a typing error in capitals": ({"optimizer_kwargs": {"Sigma": 1e-3}}, "did you mean 'sigma'?"),
    "no setting of this optimizer": (
        {"optimizer_class": "upgd", "optimizer_kwargs": {"betas": (0.9, 0.99)}},
        "known here: adaptive_noise",
    ),
    "the critics' rate": ({"critic_lr": 1e-3}, "use critic_lr_multiplier"),
    "a typing error": ({"clip_rang": 0.1}, "did you mean 'clip_range'?"),
    "an optimizer setting at the top": ({"sigma": 0.1}, "'sigma' belongs in optimizer_kwargs"),
    "a policy setting at the top": ({"lstm_hidden_size": 8}, "'lstm_hidden_size' belongs in policy_kwargs"),
    "a top setting among the optimizer's": ({"optimizer_kwargs": {"vgs_beta": 0.9}}, "belongs in DistributionalPPO"),
    "a typing error among the optimizer's": ({"optimizer_kwargs": {"sgima": 0.1}}, "did you mean 'sigma'?"),
    "a setting of another optimizer": (
        {"optimizer_class": "adam", "optimizer_kwargs": {"sigma": 0.1}},
        "optimizer_kwargs knows no setting 'sigma'",
    ),
    "a typing error among the policy's": ({"policy_kwargs": {"lstm_size": 8}}, "did you mean 'lstm_hidden_size'?"),
    "an optimizer setting nested twice": (
        {"policy_kwargs": {"optimizer_kwargs": {"beta": 0.9}}},
        "optimizer_kwargs knows no setting 'beta'",
    ),
    "an LSTM's": ({"policy_kwargs": {"lstm_kwargs": {"hidden_size": 8}}}, "'lstm_hidden_size' in policy_kwargs"),
    "a network's": ({"policy_kwargs": {"net_arch": {"qf": [8]}}}, "known here: pi, vf"),
    "an extractor's": ({"policy_kwargs": {"features_extractor_kwargs": {"dim": 8}}}, "features_extractor_kwargs"),
    "gSDE, which is not offered": ({"use_sde": True}, "knows no setting 'use_sde'"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_an_unknown_or_misplaced_setting_raises_and_names_the_right_one(case: str) -> None:
    given, words = UNKNOWN[case]
    with pytest.raises(UnknownSettingError) as caught:
        DistributionalPPO("MlpLstmPolicy", "CartPole-v1", **given)
    assert words in str(caught.value)
    assert isinstance(caught.value, TypeError)


UNUSABLE: dict[str, dict[str, Any]] = {
    "text for a bool": {"variance_gradient_scaling": "false"},
    "a number for a bool": {"normalize_advantage": 0},
    "text for a bool of the optimizer": {"optimizer_kwargs": {"adaptive_noise": "false"}},
    "text for a bool of another optimizer": {"optimizer_class": "adam", "optimizer_kwargs": {"amsgrad": "false"}},
    "text for a bool of the policy": {"policy_kwargs": {"ortho_init": "false"}},
    "text for a bool of the LSTM": {"policy_kwargs": {"lstm_kwargs": {"bias": "false"}}},
    "a fraction of a step": {"n_steps": 1.5},
    "no step": {"n_steps": 0},
    "a bool for a number": {"n_epochs": True},
    "NaN": {"ent_coef": float("nan")},
    "infinity": {"learning_rate": float("inf")},
    "a discount over 1": {"gamma": 1.01},
    "a text for a rate": {"learning_rate": "3e-4"},
    "a negative rate": {"learning_rate": -1e-3},
    "no rate": {"optimizer_kwargs": {"lr": 0.0}},
    "a bool for a rate": {"optimizer_kwargs": {"lr": True}},
    "NaN for a rate": {"optimizer_kwargs": {"lr": float("nan")}},
    "three critics": {"n_critics": 3},
    "an unknown optimizer": {"optimizer_class": "adamm"},
    "a class that is no optimizer": {"optimizer_class": dict},
    "a beta of 1": {"vgs_beta": 1.0},
    "an unknown estimator": {"vgs_estimator": "median"},
    "a width of 0": {"policy_kwargs": {"net_arch": {"pi": [0]}}},
    "both kinds of critic LSTM": {"policy_kwargs": {"shared_lstm": True}},
    "one LSTM over two sets of features": {
        "policy_kwargs": {"shared_lstm": True, "enable_critic_lstm": False, "share_features_extractor": False}
    },
    "a seed beyond 32 bits": {"seed": 2**32},
    "text for a number of another optimizer": {"optimizer_class": "adam", "optimizer_kwargs": {"eps": "x"}},
    "NaN for another optimizer": {"optimizer_class": "sgd", "optimizer_kwargs": {"momentum": float("nan")}},
    "text for a flag without default": {"optimizer_class": "adam", "optimizer_kwargs": {"foreach": "false"}},
    "an optimizer that needs the loss again": {"optimizer_class": torch.optim.LBFGS},
    "a schedule of texts": {"learning_rate": lambda _: "x"},
    "a schedule of nothing": {"clip_range": lambda _: None},
    "a schedule below 0": {"clip_range_vf": lambda _: -1.0},
    "an unknown device": {"device": "gpu"},
    "two optimizers": {"optimizer_class": "adam", "policy_kwargs": {"optimizer_class": "sgd"}},
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_a_value_that_cannot_be_used_raises_one_line_with_setting_and_value(case: str) -> None:
    with pytest.raises(SettingError) as caught:
        DistributionalPPO("MlpLstmPolicy", "CartPole-v1", **UNUSABLE[case])
    assert "\n" not in str(caught.value)
    assert caught.value.setting


BEYOND: dict[str, list[float]] = {
    "learning_rate": [0.0, 1e7],
    "n_steps": [0],
    "n_epochs": [0, 10**6 + 1],
    "gamma": [-0.01, 1.01],
    "target_kl": [0.0],
    "verbose": [-1, 3],
    "seed": [-1, 2**32],
    "ent_coef": [-0.1],
    "ent_coef_boost": [1.0],
    "ent_coef_plateau_explained_variance": [1.01],
    "ent_coef_plateau_patience": [0],
    "kl_penalty_coef": [0.0],
    "n_critics": [0, 3],
    "num_atoms": [1],
    "return_scale_decay": [-0.1, 1.0],
    "vgs_beta": [-0.1, 1.0],
    "vgs_alpha": [-0.1],
    "vgs_warmup_steps": [-1],
    "vgs_min_scaling_factor": [0.0, 1.01],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BEYOND.items() for value in values])
def test_a_value_beyond_its_range_is_refused_with_the_meaning_of_the_setting(name: str, value: float) -> None:
    with pytest.raises(SettingError, match=rf"^{name}={value} cannot be used \(.*\): ") as caught:
        PPOSettings(**{name: value})
    assert caught.value.setting == name


def test_an_unknown_policy_is_named() -> None:
    with pytest.raises(SettingError, match=r"MlpPolicy.*MlpLstmPolicy"):
        DistributionalPPO("MlpPolicy", "CartPole-v1")


def test_without_an_environment_one_error_says_what_to_do() -> None:
    with pytest.raises(SettingError, match="env=None"):
        DistributionalPPO("MlpLstmPolicy", None)


@pytest.mark.parametrize("env", [5, ["CartPole-v1"], gym.make])
def test_what_is_no_environment_is_refused_with_what_is_one(env: Any) -> None:
    with pytest.raises(SettingError, match="not a Gymnasium environment; give one, its id, or a VecEnv") as caught:
        DistributionalPPO("MlpLstmPolicy", env)
    assert caught.value.setting == "env"


def test_numpy_numbers_count_as_numbers() -> None:
    settings = resolve_settings({"gamma": np.float32(0.5), "n_steps": np.int64(7), "learning_rate": np.float64(1e-3)})
    assert (settings.gamma, settings.n_steps, settings.learning_rate) == (0.5, 7, 1e-3)
    assert resolve_settings({"optimizer_kwargs": {"lr": np.float32(0.5)}}).learning_rate == 0.5


def test_help_shows_every_setting_with_its_default() -> None:
    parameters = inspect.signature(DistributionalPPO).parameters
    assert set(PPOSettings.model_fields) <= set(parameters)
    assert parameters["vgs_beta"].default == 0.99
    text = pydoc.render_doc(DistributionalPPO, renderer=pydoc.plaintext)
    assert "vgs_beta = 0.99: decay of the scaler's statistics" in text
    assert " at 0x" not in text.split("Method resolution order")[0]


def test_the_settings_become_attributes_of_the_model() -> None:
    given: dict[str, Any] = {"n_steps": 4, "ent_coef": 0.25, "variance_gradient_scaling": True, "vgs_alpha": 0.5}
    model = DistributionalPPO("MlpLstmPolicy", "CartPole-v1", **given)
    assert (model.n_steps, model.ent_coef, model.vgs_alpha, model.learning_rate) == (4, 0.25, 0.5, 2e-3)
    assert model.variance_gradient_scaler is not None
    assert model.variance_gradient_scaler.settings.alpha == 0.5


def test_a_dict_that_the_user_gave_is_left_as_it_was() -> None:
    policy_kwargs = {"optimizer_kwargs": {"lr": 1e-2}, "lstm_hidden_size": 8}
    DistributionalPPO("MlpLstmPolicy", "CartPole-v1", policy_kwargs=policy_kwargs)
    assert policy_kwargs == {"optimizer_kwargs": {"lr": 1e-2}, "lstm_hidden_size": 8}


def test_a_numpy_bool_counts_as_a_bool() -> None:
    assert resolve_settings({"normalize_advantage": np.False_}).normalize_advantage is False


@pytest.mark.parametrize("policy", [None, 3, dict])
def test_a_policy_that_is_none_is_refused(policy: Any) -> None:
    with pytest.raises(SettingError, match="policy="):
        DistributionalPPO(policy, "CartPole-v1")


def test_cuda_is_not_quietly_replaced_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SettingError, match="no CUDA device"):
        DistributionalPPO("MlpLstmPolicy", "CartPole-v1", device="cuda")


def test_help_names_the_choices_of_a_setting_of_words() -> None:
    documented = (DistributionalPPO.__doc__ or "").splitlines()
    choices = {line.split(" = ")[0].strip(): line for line in documented if " = " in line}
    assert "('mean', 'spatial', 'total', 'element')" in choices["vgs_estimator"]
    assert "('auto', 'zero_lag', 'snapshot')" in choices["return_scale"]
    assert "(" not in choices["gamma"]


ATOMS: dict[str, Any] = {"value_distribution": "categorical", "v_min": -1.0, "v_max": 1.0}

CONTRADICTIONS: dict[str, tuple[dict[str, Any], str, str]] = {
    "no smallest return": ({"value_distribution": "categorical", "v_max": 1.0}, "v_min", "needs v_min and v_max"),
    "no largest return": ({"value_distribution": "categorical", "v_min": 1.0}, "v_max", "needs v_min and v_max"),
    "a range upside down": ({**ATOMS, "v_min": 2.0}, "v_min", r"v_min=2.0 and v_max=1.0"),
    "an empty range": ({**ATOMS, "v_min": 1.0}, "v_min", r"v_min=1.0 and v_max=1.0"),
    "one atom": ({**ATOMS, "num_atoms": 1}, "num_atoms", "num_atoms=1"),
    "an endless range": ({**ATOMS, "v_max": float("inf")}, "v_max", "v_max=inf"),
    "a range for quantiles": ({"v_min": 0.0}, "v_min", "v_min=0.0 and value_distribution='quantile'"),
    "another range for quantiles": ({"v_max": 0.0}, "v_max", "v_max=0.0 and value_distribution='quantile'"),
    "atoms for quantiles": ({"num_atoms": 51}, "num_atoms", "num_atoms=51 and value_distribution='quantile'"),
    "quantiles for atoms": ({**ATOMS, "n_quantiles": 8}, "n_quantiles", "n_quantiles=8 .*'categorical' contradict"),
    "a kappa for atoms": ({**ATOMS, "huber_kappa": 0.5}, "huber_kappa", "huber_kappa=0.5 .*'categorical' contradict"),
    "a scale for atoms": (
        {**ATOMS, "return_scale": "zero_lag"},
        "return_scale",
        "return_scale='zero_lag' and value_distribution='categorical' contradict",
    ),
    "a lagging scale for atoms": ({**ATOMS, "return_scale": "snapshot"}, "return_scale", "'snapshot' and"),
    "an unknown rule": ({"return_scale": "popart"}, "return_scale", "return_scale='popart'"),
    "an unknown distribution": ({"value_distribution": "normal"}, "value_distribution", "='normal'"),
    "averages that never move": ({"return_scale_decay": 1.0}, "return_scale_decay", "=1.0"),
    "no floor": ({"return_scale_min_std": 0.0}, "return_scale_min_std", "=0.0"),
    "an idle setting of the scaling": (
        {"vgs_beta": 0.5},
        "vgs_beta",
        "vgs_beta=0.5 and variance_gradient_scaling=False contradict",
    ),
    "scaling off": (
        {"variance_gradient_scaling": False, "vgs_beta": 0.5},
        "vgs_beta",
        "vgs_beta=0.5 and variance_gradient_scaling=False contradict each other",
    ),
    "no return scale": (
        {"return_scale": None, "return_scale_decay": 0.5},
        "return_scale_decay",
        "return_scale_decay=0.5 and return_scale=None contradict each other",
    ),
    "an idle setting of the penalty": (
        {"kl_penalty_coef": 0.5},
        "kl_penalty_coef",
        "kl_penalty_coef=0.5 and kl_penalty_target=None contradict",
    ),
    "an idle setting of the boost": (
        {"ent_coef_plateau_patience": 2},
        "ent_coef_plateau_patience",
        "ent_coef_plateau_patience=2 and ent_coef_boost=None contradict",
    ),
    "a penalty that starts above its bounds": (
        {"kl_penalty_target": 0.01, "kl_penalty_coef": 2.0, "kl_penalty_max_coef": 1.0},
        "kl_penalty_coef",
        "kl_penalty_coef=2.0 .*kl_penalty_max_coef=1.0",
    ),
    "a penalty that starts below its bounds": (
        {"kl_penalty_target": 0.01, "kl_penalty_min_coef": 0.5},
        "kl_penalty_coef",
        "kl_penalty_coef=0.2 .*kl_penalty_min_coef=0.5",
    ),
    "a stop at the target of the penalty": (
        {"kl_penalty_target": 0.02, "target_kl": 0.02},
        "kl_penalty_target",
        "target_kl=0.02 .*kl_penalty_target=0.02",
    ),
    "two starts of the entropy coefficient": (
        {"ent_coef": 0.1, "ent_coef_initial": 0.2},
        "ent_coef_initial",
        "ent_coef_initial=0.2 and ent_coef=0.1",
    ),
    "an end without a start": ({"ent_coef_final": 0.1}, "ent_coef_final", "ent_coef_final=0.1 .*ent_coef_initial"),
    "two rates": (
        {"learning_rate": 1e-3, "optimizer_kwargs": {"lr": 1e-2}},
        "optimizer_kwargs['lr']",
        r"optimizer_kwargs\['lr'\]=0\.01 and learning_rate=0\.001",
    ),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_settings_that_do_not_go_together_raise_and_are_both_named(case: str) -> None:
    given, setting, words = CONTRADICTIONS[case]
    with pytest.raises(SettingError, match=words) as caught:
        DistributionalPPO("MlpLstmPolicy", "CartPole-v1", **given)
    assert caught.value.setting == setting
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        {"kl_penalty_target": 0.01, "target_kl": 0.02},
        {"learning_rate": 1e-3, "optimizer_kwargs": {"lr": 1e-3}},
        {"ent_coef": 0.2, "ent_coef_initial": 0.2},
    ],
)
def test_settings_that_go_together_are_taken(given: dict[str, Any]) -> None:
    resolved = resolve_settings(given)
    assert (resolved.target_kl, resolved.ent_coef_initial) == (given.get("target_kl"), None)
    assert resolved.learning_rate == given.get("learning_rate", 2e-3)


def test_returns_are_scaled_without_lag_unless_told_otherwise() -> None:
    settings = resolve_settings({})
    assert (settings.value_distribution, settings.return_scale, settings.num_atoms) == ("quantile", "zero_lag", None)
    assert resolve_settings({"return_scale": None}).return_scale is None


@pytest.mark.parametrize("given", [{}, {"return_scale": None}, {"num_atoms": 51}])
def test_who_asks_for_atoms_alone_gets_raw_units(given: dict[str, Any]) -> None:
    settings = resolve_settings({**ATOMS, **given})
    assert (settings.num_atoms, settings.return_scale) == (51, None)


def test_atoms_are_resolved_wherever_the_optimizer_is_set() -> None:
    settings = resolve_settings({**ATOMS, "policy_kwargs": {"optimizer_class": "adam"}})
    assert (settings.num_atoms, settings.return_scale, settings.optimizer_class) == (51, None, "adam")


def test_settings_resolved_once_resolve_to_themselves_when_a_file_is_loaded(tmp_path: Path) -> None:
    model = make_model(**ATOMS, n_quantiles=32)
    model.save(tmp_path / "model.zip")
    loaded = DistributionalPPO.load(tmp_path / "model.zip", device="cpu")
    assert (loaded.num_atoms, loaded.v_min, loaded.v_max, loaded.return_scale) == (51, -1.0, 1.0, None)
