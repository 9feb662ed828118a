"""Subclasses as Stable-Baselines3 users write them, and going on with a saved model."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.torch_layers import FlattenExtractor

from rlcore import CheckpointError, DistributionalPPO, SettingError, load_policy
from rlcore.ppo.saving import continued
from tests.support.training import make_envs, make_model

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

    def __init__(self, *args: Any, baz: float = 0.5, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.baz = baz


class Forgetful(DistributionalPPO):
    """Keeps nothing of what it takes."""

    def __init__(self, *args: Any, foo: int = 1, **kwargs: Any) -> None:  # noqa: ARG002
        super().__init__(*args, **kwargs)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    model = Mine("MlpLstmPolicy", make_envs(), foo=7, bar=("a", "b"), **SMALL)
    model.learn(48)
    assert model.calls == ["collect", "train"]
    model.save(tmp_path / "mine.zip")
    return tmp_path / "mine.zip"


def test_own_keywords_are_those_of_the_saved_model(saved: Path) -> None:
    loaded = Mine.load(saved, env=make_envs(), device="cpu")
    assert (type(loaded), loaded.foo, loaded.bar, loaded.n_steps, loaded.n_quantiles) == (Mine, 7, ("a", "b"), 16, 5)
    loaded.learn(48, reset_num_timesteps=False)
    assert (loaded.num_timesteps, loaded.calls) == (96, ["collect", "train"])


def test_a_loaded_subclass_goes_on_exactly(saved: Path) -> None:
    straight = Mine("MlpLstmPolicy", make_envs(), foo=7, bar=("a", "b"), **SMALL)
    straight.learn(96)
    resumed = Mine.load(saved, env=make_envs(), device="cpu")
    resumed.learn(48, reset_num_timesteps=False)
    for ours, theirs in zip(resumed.policy.parameters(), straight.policy.parameters(), strict=True):
        assert ours.equal(theirs)


def test_a_subclass_of_a_subclass_keeps_the_keywords_of_both(tmp_path: Path) -> None:
    Further("MlpLstmPolicy", make_envs(), foo=7, baz=0.25, **SMALL).save(tmp_path / "further.zip")
    loaded = Further.load(tmp_path / "further.zip", device="cpu")
    assert (loaded.foo, loaded.baz) == (7, 0.25)


def test_a_copy_keeps_own_keywords() -> None:
    model = Mine("MlpLstmPolicy", make_envs(), foo=7, **SMALL)
    assert pickle.loads(pickle.dumps(model)).foo == 7  # noqa: S301


def test_what_a_subclass_takes_and_does_not_keep_cannot_be_saved(tmp_path: Path) -> None:
    model = Forgetful("MlpLstmPolicy", make_envs(), foo=7, **SMALL)
    with pytest.raises(AttributeError, match="'Forgetful' object has no attribute 'foo'"):
        model.save(tmp_path / "forgetful.zip")
    assert list(tmp_path.iterdir()) == []


def test_another_class_refuses_what_it_does_not_take(saved: Path) -> None:
    with pytest.raises(CheckpointError, match=r"mine\.zip.*'bar', 'foo'.*load the file with that class"):
        DistributionalPPO.load(saved, device="cpu")


def test_a_policy_is_loaded_without_the_class(saved: Path) -> None:
    assert load_policy(saved).device.type == "cpu"


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
    assert continued(path, Hooked("MlpLstmPolicy", make_envs(), hook=hook, **SMALL)).hook is hook  # type: ignore[attr-defined]
    Hooked("MlpLstmPolicy", make_envs(), hook=1, **SMALL).save(path)
    with pytest.raises(SettingError, match="hook=2 is asked for, and what is to go on was trained with 1"):
        continued(path, Hooked("MlpLstmPolicy", make_envs(), hook=2, **SMALL))


class Scaled(FlattenExtractor):
    """Takes an array among its settings."""

    def __init__(self, space: spaces.Space[Any], scale: Any) -> None:
        super().__init__(space)
        self.scale = scale


def built(scale: Any, rate: Any = 1e-3) -> DistributionalPPO:
    extractor = {"features_extractor_class": Scaled, "features_extractor_kwargs": {"scale": scale}}
    return make_model(learning_rate=rate, policy_kwargs={"lstm_hidden_size": 8, **extractor})


def test_arrays_among_the_settings_are_compared(tmp_path: Path) -> None:
    built(np.arange(3.0)).save(tmp_path / "model.zip")
    same = continued(tmp_path / "model.zip", built(np.arange(3.0)))
    np.testing.assert_array_equal(same.policy_kwargs["features_extractor_kwargs"]["scale"], np.arange(3.0))
    with pytest.raises(SettingError, match="is asked for") as caught:
        continued(tmp_path / "model.zip", built(np.arange(4.0)))
    assert caught.value.setting == "policy_kwargs"


def test_a_function_that_no_file_holds_is_the_one_of_today(tmp_path: Path) -> None:
    def rate(remaining: float) -> float:
        return 1e-3 * remaining

    built(1.0, rate).save(tmp_path / "model.zip")
    assert continued(tmp_path / "model.zip", built(1.0, rate)).learning_rate is rate
    with pytest.raises(SettingError, match=r"learning_rate=0\.5 is asked for"):
        continued(tmp_path / "model.zip", built(1.0, 0.5))
