"""Every level refuses what it does not know, says where it belongs, and takes no text for a bool."""

from __future__ import annotations

import inspect
import pickle
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlcore import DistributionalPPO, PPOSettings, ResumeWarning, SettingError, UnknownSettingError, load_policy
from rlcore.ppo.saving import NO_SETTINGS
from rlcore.ppo.settings import resolve_settings
from tests.support.space_cases import BOX, IMAGE, TWO, Echo
from tests.support.training import make_envs, make_model

UNKNOWN: dict[str, tuple[dict[str, Any], str]] = {
    "of the audited system": ({"vgs_enabled": True}, "use variance_gradient_scaling"),
    "in capitals": ({"optimizer_kwargs": {"Sigma": 1e-3}}, "did you mean 'sigma'?"),
    "not of this optimizer": (
        {"optimizer_class": "upgd", "optimizer_kwargs": {"betas": (0.9, 0.9)}},
        "known here: adap",
    ),
    "a typing error": ({"clip_rang": 0.1}, "did you mean 'clip_range'?"),
    "an optimizer setting at the top": ({"sigma": 0.1}, "'sigma' belongs in optimizer_kwargs"),
    "a policy setting at the top": ({"lstm_hidden_size": 8}, "'lstm_hidden_size' belongs in policy_kwargs"),
    "a top setting among the optimizer's": ({"optimizer_kwargs": {"vgs_beta": 0.9}}, "belongs in DistributionalPPO"),
    "among the policy's": ({"policy_kwargs": {"lstm_size": 8}}, "did you mean 'lstm_hidden_size'?"),
    "nested twice": (
        {"policy_kwargs": {"optimizer_kwargs": {"beta": 0.9}}},
        "optimizer_kwargs knows no setting 'beta'",
    ),
    "an LSTM's": ({"policy_kwargs": {"lstm_kwargs": {"hidden_size": 8}}}, "'lstm_hidden_size' in policy_kwargs"),
    "a network's": ({"policy_kwargs": {"net_arch": {"qf": [8]}}}, "known here: pi, vf"),
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
    "text for a flag without default": {"optimizer_class": "adam", "optimizer_kwargs": {"foreach": "false"}},
    "text for a bool of the policy": {"policy_kwargs": {"ortho_init": "false"}},
    "text for a bool of the LSTM": {"policy_kwargs": {"lstm_kwargs": {"bias": "false"}}},
    "a fraction of a step": {"n_steps": 1.5},
    "a bool for a number": {"n_epochs": True},
    "NaN": {"ent_coef": float("nan")},
    "infinity": {"learning_rate": float("inf")},
    "a text for a rate": {"learning_rate": "3e-4"},
    "no rate": {"optimizer_kwargs": {"lr": 0.0}},
    "a bool for a rate": {"optimizer_kwargs": {"lr": True}},
    "an unknown optimizer": {"optimizer_class": "adamm"},
    "a class that is no optimizer": {"optimizer_class": dict},
    "an unknown estimator": {"vgs_estimator": "median"},
    "a width of 0": {"policy_kwargs": {"net_arch": {"pi": [0]}}},
    "policy_kwargs that are no mapping": {"policy_kwargs": "abc"},
    "text for a number of another optimizer": {"optimizer_class": "adam", "optimizer_kwargs": {"eps": "x"}},
    "an optimizer that needs the loss again": {"optimizer_class": torch.optim.LBFGS},
    "a schedule of texts": {"learning_rate": lambda _: "x"},
    "a schedule of nothing": {"clip_range": lambda _: None},
    "a schedule below 0": {"clip_range_vf": lambda _: -1.0},
    "a schedule without end": {"clip_range": lambda _: float("inf")},
    "no smallest return": {"value_distribution": "categorical", "v_max": 1.0},
    "no largest return": {"value_distribution": "categorical", "v_min": 1.0},
    "an empty range": {"value_distribution": "categorical", "v_min": 1.0, "v_max": 1.0},
    "an endless range": {"value_distribution": "categorical", "v_min": 1.0, "v_max": float("inf")},
    "a policy of another kind": {"policy": "MlpPolicy"},
    "a class that is no policy": {"policy": dict},
    "no environment": {"env": None},
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_a_value_that_cannot_be_used_raises_one_line_with_setting_and_value(case: str) -> None:
    with pytest.raises(SettingError) as caught:
        DistributionalPPO(**{"policy": "MlpLstmPolicy", "env": "CartPole-v1", **UNUSABLE[case]})
    assert "\n" not in str(caught.value)
    assert caught.value.setting


BEYOND: dict[str, list[float]] = {
    "learning_rate": [0.0, 1e7],
    "n_steps": [0],
    "n_epochs": [0, 10**6 + 1],
    "return_scale_min_std": [0.0],
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


def test_a_dict_that_the_user_gave_is_left_as_it_was() -> None:
    policy_kwargs = {"optimizer_kwargs": {"lr": 1e-2}, "lstm_hidden_size": 8}
    DistributionalPPO("MlpLstmPolicy", "CartPole-v1", policy_kwargs=policy_kwargs)
    assert policy_kwargs == {"optimizer_kwargs": {"lr": 1e-2}, "lstm_hidden_size": 8}


def test_cuda_is_not_quietly_replaced_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(SettingError, match="no CUDA device"):
        DistributionalPPO("MlpLstmPolicy", "CartPole-v1", device="cuda")


ATOMS: dict[str, Any] = {"value_distribution": "categorical", "v_min": -1.0, "v_max": 1.0}

IDLE: dict[str, tuple[dict[str, Any], str]] = {
    "v_min": ({"v_min": 0.0}, "value_distribution='quantile'"),
    "num_atoms": ({"num_atoms": 51}, "value_distribution='quantile'"),
    "n_quantiles": ({**ATOMS, "n_quantiles": 8}, "value_distribution='categorical'"),
    "huber_kappa": ({**ATOMS, "huber_kappa": 0.5}, "value_distribution='categorical'"),
    "vgs_beta": ({"variance_gradient_scaling": False, "vgs_beta": 0.5}, "variance_gradient_scaling=False"),
    "return_scale_decay": ({"return_scale": None, "return_scale_decay": 0.5}, "return_scale=None"),
    "kl_penalty_coef": ({"kl_penalty_coef": 0.5}, "kl_penalty_target=None"),
    "ent_coef_plateau_patience": ({"ent_coef_plateau_patience": 2}, "ent_coef_boost=None"),
}


@pytest.mark.parametrize("setting", IDLE)
def test_a_setting_that_would_do_nothing_is_refused_with_what_switches_it_off(setting: str) -> None:
    given, words = IDLE[setting]
    with pytest.raises(SettingError, match=f"^{setting}=.* would do nothing, as {words}; ") as caught:
        DistributionalPPO("MlpLstmPolicy", "CartPole-v1", **given)
    assert caught.value.setting == setting


RESOLVED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"learning_rate": 2e-3, "return_scale": "zero_lag", "num_atoms": None, "ent_coef": 0.0, "policy_kwargs": {}}),
    ({"return_scale": None}, {"return_scale": None}),
    (ATOMS, {"num_atoms": 51, "return_scale": None}),
    ({**ATOMS, "return_scale": "snapshot", "num_atoms": 7}, {"num_atoms": 7, "return_scale": None}),
    (
        {"policy_kwargs": {"optimizer_class": "adam", "n_lstm_layers": 2}},
        {"learning_rate": 3e-4, "optimizer_class": "adam", "policy_kwargs": {"n_lstm_layers": 2}},
    ),
    ({"learning_rate": 1e-3, "optimizer_kwargs": {"lr": 1e-2}}, {"learning_rate": 1e-2, "optimizer_kwargs": {}}),
    ({"ent_coef": 0.1, "ent_coef_initial": 0.2}, {"ent_coef": 0.2, "ent_coef_initial": None}),
    ({"gamma": np.float32(0.5), "n_steps": np.int64(7)}, {"gamma": 0.5, "n_steps": 7}),
    ({"optimizer_kwargs": {"lr": np.float32(0.5)}}, {"learning_rate": 0.5}),
    ({"normalize_advantage": np.False_}, {"normalize_advantage": False}),
]


@pytest.mark.parametrize(("given", "expected"), RESOLVED)
def test_what_follows_from_the_settings_that_are_given(given: dict[str, Any], expected: dict[str, Any]) -> None:
    resolved = resolve_settings(given)
    found = {name: getattr(resolved, name) for name in expected}
    assert found == expected
    assert [type(value) for value in found.values()] == [type(value) for value in expected.values()]
    assert resolve_settings(dict(resolved), asked=()) == resolved


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    """The file of a model with settings of its own for what can be switched off."""
    model = make_model(vgs_beta=0.5, return_scale_decay=0.5, kl_penalty_target=0.01, kl_penalty_coef=0.5)
    model.learn(48)
    model.save(tmp_path / "tuned.zip")
    return tmp_path / "tuned.zip"


def switched_off(file: Path) -> DistributionalPPO:
    off: dict[str, Any] = {"variance_gradient_scaling": False, "kl_penalty_target": None}
    with pytest.warns(ResumeWarning, match="gradient statistics are dropped"):
        return DistributionalPPO.load(file, env=make_envs(), device="cpu", **off)


def test_what_a_file_brings_may_be_idle(tuned: Path, tmp_path: Path) -> None:
    model = switched_off(tuned)
    model.save(tmp_path / "off.zip")
    again = DistributionalPPO.load(tmp_path / "off.zip", device="cpu")
    copy = pickle.loads(pickle.dumps(again))  # noqa: S301
    for each in (model, again, copy):
        assert (each.vgs_beta, each.return_scale_decay, each.kl_penalty_coef) == (0.5, 0.5, 0.5)
    assert load_policy(tmp_path / "off.zip").device.type == "cpu"


def test_what_is_asked_for_at_a_load_may_not(tuned: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"vgs_alpha=0\.5 would do nothing, as variance_gradient_scaling=False"):
        DistributionalPPO.load(tuned, device="cpu", variance_gradient_scaling=False, vgs_alpha=0.5)
    switched_off(tuned).save(tmp_path / "off.zip")
    with pytest.raises(SettingError, match=r"vgs_alpha=0\.5 would do nothing, as variance_gradient_scaling=False"):
        DistributionalPPO.load(tmp_path / "off.zip", device="cpu", vgs_alpha=0.5)


def test_setting_an_attribute_of_what_is_switched_off_is_refused() -> None:
    model = make_model()
    with pytest.raises(SettingError, match=r"kl_penalty_coef=0\.5 would do nothing, as kl_penalty_target=None"):
        model.kl_penalty_coef = 0.5
    model.kl_penalty_target = 0.01
    model.kl_penalty_coef = 0.5
    assert model.kl_penalty.coefficient == 0.5


NESTED = spaces.Dict({"inner": spaces.Dict({"x": BOX})})

# Space and policy of each case; the first word of the space is in the message.
OBSERVATIONS: list[tuple[spaces.Space[Any], str]] = [
    (NESTED, "MultiInputLstmPolicy"),
    (spaces.Dict({}), "MultiInputLstmPolicy"),
    (spaces.Tuple([BOX, TWO]), "MlpLstmPolicy"),
    (spaces.Dict({"pair": spaces.Tuple([BOX])}), "MultiInputLstmPolicy"),
    (spaces.Graph(BOX, None), "MlpLstmPolicy"),
    (spaces.Text(5), "MlpLstmPolicy"),
    (spaces.MultiDiscrete([[2, 3], [4, 5]]), "MlpLstmPolicy"),
    (spaces.Discrete(3, start=1), "MlpLstmPolicy"),
    (spaces.MultiDiscrete([3, 2], start=[0, 1]), "MlpLstmPolicy"),
    (spaces.MultiDiscrete([]), "MlpLstmPolicy"),
    (spaces.Box(-1, 1, ()), "MlpLstmPolicy"),
    (spaces.Box(-1, 1, (2, 0)), "MlpLstmPolicy"),
    (spaces.MultiBinary(()), "MlpLstmPolicy"),
    (spaces.Dict({"x": BOX, "none": spaces.Box(-1, 1, (0,))}), "MultiInputLstmPolicy"),
    # A policy for other observations.
    (spaces.Dict({"b": BOX, "a": TWO}), "MlpLstmPolicy"),
    (spaces.Dict({"view": IMAGE}), "CnnLstmPolicy"),
    (BOX, "MultiInputLstmPolicy"),
]
ACTIONS: list[spaces.Space[Any]] = [
    spaces.Dict({"x": TWO}),
    spaces.Tuple([TWO]),
    spaces.Text(5),
    spaces.Discrete(3, start=2),
    spaces.MultiDiscrete([3, 2], start=[5, -1]),
    spaces.MultiDiscrete([[2, 3], [4, 5]]),
    spaces.MultiDiscrete([]),
    spaces.MultiBinary((2, 2)),
    spaces.MultiBinary([3]),
    spaces.Box(-np.inf, 1, (2,)),
    spaces.Box(-1, 1, (0,)),
    spaces.Box(0, 5, (2,), np.int64),
]
SIDES = [
    *((space, TWO, policy, f"the observations are .*{type(space).__name__}") for space, policy in OBSERVATIONS),
    *((BOX, space, "MlpLstmPolicy", f"the actions are .*{type(space).__name__}") for space in ACTIONS),
]


@pytest.mark.parametrize(("observations", "actions", "policy", "words"), SIDES, ids=lambda value: str(value)[:40])
def test_what_the_table_does_not_have_is_refused_in_one_line_that_says_what_it_has(
    observations: spaces.Space[Any], actions: spaces.Space[Any], policy: str, words: str
) -> None:
    with pytest.raises(SettingError, match=rf"{words}.* does not take: 'MlpLstmPolicy' reads") as caught:
        DistributionalPPO(policy, Echo(observations, actions))
    assert "\n" not in str(caught.value)


def test_images_that_are_normalised_already_are_read_when_told_so() -> None:
    options = {"features_extractor_kwargs": {"features_dim": 4}}
    policy_kwargs = {"normalize_images": False, "lstm_hidden_size": 4, **options}
    model = make_model(Echo(spaces.Box(0, 1, (3, 40, 40)), TWO), "CnnLstmPolicy", policy_kwargs=policy_kwargs)
    assert model.learn(16).num_timesteps == 16
    assert options == {"features_extractor_kwargs": {"features_dim": 4}}
    assert model.policy.critic_arch == []


SMALL: dict[str, Any] = {"n_steps": 16, "batch_size": 16, "seed": 0}


def keywords() -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(DistributionalPPO).parameters
    return {name: each for name, each in parameters.items() if name not in (*NO_SETTINGS, "unknown")}


def test_the_constructor_takes_every_setting_with_its_default_and_nothing_else() -> None:
    defaults = {name: each.default for name, each in keywords().items()}
    assert defaults == {name: field.default for name, field in PPOSettings.model_fields.items()}
    assert list(defaults) == list(PPOSettings.model_fields)
    assert "\n    vgs_beta = 0.99: decay of the scaler's statistics" in (DistributionalPPO.__doc__ or "")


def test_the_types_of_keywords_are_those_of_the_table() -> None:
    table = get_type_hints(PPOSettings)  # without the limits, which are pydantic's
    assert {name: each.annotation for name, each in keywords().items()} == {name: table[name] for name in keywords()}


def settings_of(model: DistributionalPPO) -> dict[str, Any]:
    return {**model.__getstate__()["settings"], "clip_range": model.clip_range(1.0)}


@pytest.mark.parametrize(
    "settings",
    [{}, {"variance_gradient_scaling": False}, {"value_distribution": "categorical", "v_min": 0.0, "v_max": 1.0}],
    ids=["defaults", "no scaling", "atoms"],
)
def test_the_table_can_be_passed_back_in(settings: dict[str, Any]) -> None:
    dumped = PPOSettings(**settings, **SMALL).model_dump()
    again = DistributionalPPO("MlpLstmPolicy", make_envs(), device="cpu", **dumped)
    direct = DistributionalPPO("MlpLstmPolicy", make_envs(), device="cpu", **settings, **SMALL)
    assert settings_of(again) == settings_of(direct)


class TestAttributes:
    """A setting that is assigned to later changes what trains, or raises."""

    @pytest.mark.parametrize(
        ("name", "value", "trains_with"),
        [
            ("vgs_alpha", 0.7, lambda model: model.variance_gradient_scaler.settings.alpha),
            ("gamma", 0.5, lambda model: model.rollout_buffer.gamma),
            ("gae_lambda", 0.5, lambda model: model.rollout_buffer.gae_lambda),
            ("huber_kappa", 0.5, lambda model: model.policy.values.huber_kappa),
            ("learning_rate", 0.125, lambda model: model.policy.optimizer.param_groups[0]["lr"]),
            ("clip_range", 0.125, lambda model: model.clip_range(1.0)),
            ("ent_coef", 0.25, lambda model: model.entropy_schedule.coefficient(1.0)),
            ("critic_lr_multiplier", 2.0, lambda model: model.policy.optimizer.param_groups[1]["lr"] / 0.005),
        ],
    )
    def test_what_trains_has_the_new_value_before_and_after_a_load(
        self, name: str, value: object, trains_with: Any, tmp_path: Path
    ) -> None:
        model = make_model(learning_rate=0.005)
        assert trains_with(model) != value
        setattr(model, name, value)
        assert trains_with(model) == pytest.approx(value)
        model.save(tmp_path / "model.zip")
        loaded = DistributionalPPO.load(tmp_path / "model.zip", device="cpu")
        assert trains_with(loaded) == pytest.approx(trains_with(model))

    @pytest.mark.parametrize(("name", "value"), [("n_steps", 8), ("n_critics", 1), ("seed", 3), ("n_quantiles", 4)])
    def test_what_cannot_change_raises_and_stays(self, name: str, value: object) -> None:
        model = make_model()
        before = getattr(model, name)
        with pytest.raises(SettingError, match=f"{name}={value} cannot change in a model that exists"):
            setattr(model, name, value)
        assert getattr(model, name) == before
