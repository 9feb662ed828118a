"""Subclasses as Stable-Baselines3 users write them, and going on with a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlcore import CheckpointError, DistributionalPPO, SettingError
from rlcore.ppo.saving import continued
from tests.support.training import make_envs

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


def test_what_a_subclass_takes_and_does_not_keep_cannot_be_saved(tmp_path: Path) -> None:
    model = Forgetful("MlpLstmPolicy", make_envs(), foo=7, **SMALL)
    with pytest.raises(AttributeError, match="'Forgetful' object has no attribute 'foo'"):
        model.save(tmp_path / "forgetful.zip")
    assert list(tmp_path.iterdir()) == []


def test_another_class_refuses_what_it_does_not_take(saved: Path) -> None:
    with pytest.raises(CheckpointError, match=r"mine\.zip.*'bar', 'foo'.*load the file with that class"):
        DistributionalPPO.load(saved, device="cpu")


class Hooked(DistributionalPPO):
    """Takes what no file can hold."""

    def __init__(self, *args: Any, hook: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.hook = hook


def test_an_own_setting_that_no_file_holds_can_be_replaced_as_it_is_loaded(tmp_path: Path) -> None:
    Hooked("MlpLstmPolicy", make_envs(), hook=lambda x: x, **SMALL).save(tmp_path / "model.zip")
    assert Hooked.load(tmp_path / "model.zip", custom_objects={"hook": abs}, device="cpu").hook is abs
    with pytest.raises(CheckpointError, match="'hook' was 'the function"):
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
