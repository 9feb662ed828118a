"""Every level refuses what it does not know, says where it belongs, and takes no text for a bool."""

from __future__ import annotations

import inspect
import pydoc
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from rlcore import DistributionalPPO, PPOSettings, SettingError, UnknownSettingError
from rlcore.ppo.arguments import resolve_settings

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
