"""Files that are damaged, foreign or out of reach: one error names the file, the field and what to do."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import nn

from rlcore import (
    CheckpointError,
    DistributionalPPO,
    ResumableEnv,
    ResumeWarning,
    SettingError,
    StateError,
    load_checkpoint,
    load_policy,
    save_checkpoint,
)
from rlcore.checkpoint import load_container, save_container
from tests.support.space_cases import Echo
from tests.support.training import differing, make_envs, make_model

Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("files") / "healthy.zip"
    model = make_model(make_envs(normalize=True), optimizer_class="adam")
    model.learn(96)
    model.save(path)
    return path


@pytest.fixture
def edit(healthy: Path, tmp_path: Path) -> Callable[[Change], Path]:
    def edited(change: Change) -> Path:
        content: Any = load_container(healthy)
        change(content)
        save_container(tmp_path / "edited.zip", content)
        return tmp_path / "edited.zip"

    return edited


def at(*path: Any, value: Any) -> Change:
    def change(content: dict[str, Any]) -> None:
        place: Any = content
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return change


def moments(**changes: Any) -> Change:
    return lambda content: content["state"]["policy.optimizer"]["state"][0].update(changes)


ENVIRONMENT = ("state", "env_state", "environments", 0, "layers")
OPTIMIZER = ("state", "policy.optimizer")
LEARNER: dict[str, tuple[Change, str]] = {
    "whole numbers for weights": (
        at("state", "policy", "action_net.bias", value=torch.zeros(2, dtype=torch.int64)),
        "policy",
    ),
    "a list for a weight": (at("state", "policy", "action_net.bias", value=[0.0, 0.0]), "policy"),
    "a step that is None": (moments(step=None), "policy.optimizer.*'step'"),
    "a parameter that is a list": (at(*OPTIMIZER, "param_groups", 0, "params", 0, value=[]), "policy"),
    "moments in a list": (at(*OPTIMIZER, "state", value=[]), "policy.optimizer"),
    "a number for the moments of a parameter": (at(*OPTIMIZER, "state", 0, value=1), "policy.optimizer"),
    "moments of a parameter that is not there": (at(*OPTIMIZER, "state", 999, value={}), "policy.optimizer"),
    "text for a rate": (at(*OPTIMIZER, "param_groups", 0, "lr", value="x"), "policy.optimizer"),
    "a number for a group": (at(*OPTIMIZER, "param_groups", value=[1, 2]), "policy.optimizer"),
    "text for the statistics": (at("state", "vgs_state", "step_count", value="8"), "step_count"),
}
DAMAGES: dict[str, tuple[Change, str]] = {
    **LEARNER,
    "one average missing": (
        lambda content: content["state"]["policy.optimizer"]["state"][0].pop("exp_avg"),
        "policy.optimizer",
    ),
    "text for a counter": (at("state", "progress_state", "num_timesteps", value="abc"), "progress_state"),
    "a negative counter": (at("state", "progress_state", "_n_updates", value=-1), "progress_state"),
    **{
        f"{value} for the progress": (
            at("state", "progress_state", "_current_progress_remaining", value=value),
            "progress_state",
        )
        for value in ("x", float("nan"), 1.5, -0.5)
    },
    "numbers for finished episodes": (at("state", "progress_state", "ep_info_buffer", value=[1, 2]), "ep_info_buffer"),
    "a number for successes": (at("state", "progress_state", "ep_success_buffer", value=1), "ep_success_buffer"),
    "no generators": (at("state", "rng_state", value={}), "rng_state"),
    "a generator's state cut short": (
        at("state", "rng_state", "torch", value=torch.zeros(3, dtype=torch.uint8)),
        "rng_state",
    ),
    "another generator's state": (at("state", "rng_state", "python", value=[3, [1, 2], None]), "rng_state"),
    "no LSTM states": (at("state", "lstm_state", value={}), "lstm_state"),
    "one LSTM state": (at("state", "lstm_state", "actor", value=[]), "lstm_state"),
    "LSTM states of another size": (at("state", "lstm_state", "critic", 0, value=torch.zeros(1, 3, 5)), "lstm_state"),
    "observations of another size": (at("state", "lstm_state", "observations", value=torch.zeros(3, 5)), "lstm_state"),
    "NaN in the observations": (
        at("state", "lstm_state", "observations", value=torch.full((3, 4), float("nan"))),
        "observations.* NaN",
    ),
    "flags of another shape": (at("state", "lstm_state", "episode_starts", value=torch.zeros(3, 1)), "lstm_state"),
    "no environments": (at("state", "env_state", value={}), "env_state"),
    "more quantiles than a tensor has": (at("settings", "n_quantiles", value=2**63), "n_quantiles"),
    "more steps than are counted": (at("state", "vgs_state", "step_count", value=2**70), "step_count"),
    "a generator without keys": (
        at("state", "rng_state", "numpy", 0, value=torch.zeros(0, dtype=torch.int64)),
        "rng_state",
    ),
    "a generator that reads beyond its keys": (at("state", "rng_state", "numpy", 1, value=10**6), "rng_state"),
    "a generator with a text": (at("state", "rng_state", "python", 2, value="x"), "rng_state"),
    "an episode without a return": (
        lambda content: content["state"]["progress_state"]["ep_info_buffer"][0].pop("r"),
        "progress_state.*ep_info_buffer",
    ),
    "an episode with a text": (at("state", "progress_state", "ep_info_buffer", 0, "l", value="9"), "ep_info_buffer"),
    "a text for a success": (at("state", "progress_state", "ep_success_buffer", value=["x"]), "ep_success_buffer"),
    "successes of several shapes": (
        at("state", "progress_state", "ep_success_buffer", value=[[1.0, 2.0], 2.0]),
        "ep_success_buffer",
    ),
    "a success of several shapes": (
        at("state", "progress_state", "ep_success_buffer", value=[[[1.0], 2.0]]),
        "ep_success_buffer",
    ),
    "an empty success": (at("state", "progress_state", "ep_success_buffer", value=[[]]), "ep_success_buffer"),
    "more steps than a float counts": (at("state", "progress_state", "num_timesteps", value=2**70), "num_timesteps"),
    "NaN in the actor's LSTM state": (
        lambda content: content["state"]["lstm_state"]["actor"][0].fill_(float("nan")),
        "lstm_state.*actor.*NaN",
    ),
    "a return that overflows": (at("state", "return_scale_state", "mean", value=1e308), "return_scale_state.*mean"),
    "no elapsed steps": (
        lambda content: [
            layer["state"].update(_elapsed_steps=None)
            for layer in content["state"]["env_state"]["environments"][1]["layers"]
            if "_elapsed_steps" in layer["state"]
        ],
        "env_state",
    ),
    "an environment that waits for a reset": (at(*ENVIRONMENT, 0, "state", value={"needs_reset": True}), "env_state"),
    "LSTM states of fewer environments": (
        lambda content: content["state"]["env_state"]["environments"].pop(),
        "lstm_state and env_state are of different numbers",
    ),
    "a text of 100 kB": (at("settings", "learning_rate", value="x" * 100_000), "learning_rate"),
    "an option of 100 kB": (at("settings", "optimizer_kwargs", value={"eps": "x" * 100_000}), "eps"),
    "an option that is None": (at("settings", "optimizer_kwargs", value={"betas": None}), "optimizer_kwargs"),
    "a class of 100 kB": (at("settings", "optimizer_class", value="x" * 100_000), "optimizer_class"),
    "half a mark": (at("settings", "clip_range", value={"__kind__": "FloatSchedule"}), "clip_range"),
    "a space that is too large": (
        at("observation_space", value={"__kind__": "MultiBinary", "n": 2**70}),
        "observation|space|policy",
    ),
}


@pytest.mark.parametrize("damage", LEARNER)
def test_parameters_with_it_are_refused_and_change_nothing(damage: str, healthy: Path) -> None:
    model = DistributionalPPO.load(healthy, device="cpu")
    before, damaged = model.get_parameters(), model.get_parameters()
    LEARNER[damage][0]({"state": damaged})
    with pytest.raises(StateError):
        model.set_parameters(damaged)
    assert differing(before, model.get_parameters()) == []


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_one_short_error_with_file_and_field(damage: str, edit: Callable[[Change], Path]) -> None:
    change, field = DAMAGES[damage]
    with pytest.raises(CheckpointError, match=rf"edited\.zip: .*{field}") as caught:
        DistributionalPPO.load(edit(change), env=make_envs(normalize=True), device="cpu")
    assert len(str(caught.value)) <= 500
    assert str(caught.value).isprintable()


BAD_WEIGHTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "NaN": lambda old: torch.full_like(old, float("nan")),
    "infinity": lambda old: torch.full_like(old, float("-inf")),
    "beyond float32": lambda old: torch.full_like(old, 1e300, dtype=torch.float64),
    "another shape": lambda old: old[:1],
    "whole numbers": lambda old: old.to(torch.int64),
    "no tensor": lambda _: [0.0, 0.0],
}


@pytest.mark.parametrize("bad", BAD_WEIGHTS)
def test_acting_refuses_the_weights_that_training_refuses(bad: str, edit: Any) -> None:
    def change(content: dict[str, Any]) -> None:
        weights = content["state"]["policy"]
        weights["action_net.bias"] = BAD_WEIGHTS[bad](weights["action_net.bias"])

    path = edit(change)
    for read in (lambda: DistributionalPPO.load(path, device="cpu"), lambda: load_policy(path)):
        with pytest.raises(CheckpointError, match=r"edited\.zip: policy\['action_net\.bias'\]"):
            read()


def test_what_a_file_lacks_is_one_warning(edit: Any) -> None:
    lacking = ("vgs_state", "progress_state", "env_state", "lstm_state", "rng_state")
    path = edit(lambda content: [content["state"].pop(key) for key in lacking])
    with pytest.warns(ResumeWarning, match=f"no state for {', '.join(lacking)}") as caught:
        loaded = DistributionalPPO.load(path, env=make_envs(normalize=True), device="cpu")
    assert len(caught) == 1
    loaded.learn(64, reset_num_timesteps=False)


READS: dict[str, Callable[[Any], object]] = {
    "load": lambda path: DistributionalPPO.load(path, device="cpu"),
    "load_policy": load_policy,
    "load_checkpoint": load_checkpoint,
    "set_parameters": lambda path: make_model().set_parameters(path),
}
WRITES: dict[str, Callable[[Any], object]] = {
    "save": lambda path: make_model().save(path),
    "save_checkpoint": lambda path: save_checkpoint(path, make_model().get_parameters(), step=0, performance=0.0),
}


@pytest.mark.parametrize("use", [*READS, *WRITES])
@pytest.mark.parametrize("place", ["a name of 300 characters", "a NUL", "a loop of links", "no permission"])
def test_a_path_out_of_reach_is_named(place: str, use: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    names = {"a name of 300 characters": "n" * 300, "a NUL": "a\0b.zip", "a loop of links": "loop/a.zip"}
    if place == "no permission":
        deny(monkeypatch, tmp_path)
    with pytest.raises(CheckpointError) as caught:
        {**READS, **WRITES}[use](tmp_path / names.get(place, "a.zip"))
    assert len(str(caught.value)) <= 500
    assert str(tmp_path) in str(caught.value)


def deny(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let the system refuse everything in ``folder``, as it does to who has no permission; root always has it."""
    for name in ("open", "stat", "mkdir"):
        original = getattr(os, name)

        def denied(path: Any, *args: Any, _original: Any = original, **kwargs: Any) -> Any:
            if str(path).startswith(str(folder)):
                raise PermissionError(13, "Permission denied", str(path))
            return _original(path, *args, **kwargs)

        monkeypatch.setattr(os, name, denied)


@pytest.mark.parametrize("use", READS)
def test_a_closed_file_is_no_file(use: str) -> None:
    file = io.BytesIO()
    file.close()
    with pytest.raises(CheckpointError, match="cannot be read"):
        READS[use](file)


@pytest.mark.parametrize("use", ["load", "set_parameters"])
def test_a_file_of_stable_baselines3_is_called_one(use: str, tmp_path: Path) -> None:
    PPO("MlpPolicy", make_envs(), n_steps=8, batch_size=8, device="cpu").save(tmp_path / "sb3.zip")
    said = r"sb3\.zip: is a file of Stable-Baselines3's save\(\).*RecurrentPPO\.load"
    with pytest.raises(CheckpointError, match=said):
        READS[use](tmp_path / "sb3.zip")


def halved(remaining: float) -> float:
    return 1e-3 * remaining


def test_a_schedule_that_no_file_holds_can_be_replaced(tmp_path: Path) -> None:
    make_model(learning_rate=halved, clip_range=halved).save(tmp_path / "model.zip")
    given = {"learning_rate": 0.5, "clip_range": 0.25}
    loaded = DistributionalPPO.load(tmp_path / "model.zip", device="cpu", custom_objects=given)
    assert (loaded.lr_schedule(1.0), loaded.clip_range(1.0)) == (0.5, 0.25)
    with pytest.raises(CheckpointError, match=r"'clip_range' was .*custom_objects"):
        DistributionalPPO.load(tmp_path / "model.zip", device="cpu", custom_objects={"learning_rate": 0.5})


def test_a_setting_of_the_caller_s_is_not_called_the_file_s(healthy: Path) -> None:
    for wrong in ({"n_steps": 0}, {"optimizer_kwargs": {"betas": None}}):
        with pytest.raises(SettingError):
            DistributionalPPO.load(healthy, device="cpu", **wrong)


class Measured(FlattenExtractor):
    """Asks for real tensors where it is built, as many extractors of users do."""

    def __init__(self, observation_space: Any) -> None:
        super().__init__(observation_space)
        self.scale = nn.Parameter(torch.full((1,), float(torch.ones(1).sum())))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = super().forward(observations)
        return features * self.scale


def test_an_extractor_that_needs_real_tensors_is_loaded_and_compared_when_it_is_built(tmp_path: Path) -> None:
    kwargs = {"lstm_hidden_size": 8, "net_arch": [8], "features_extractor_class": Measured}
    make_model(policy_kwargs=kwargs).save(tmp_path / "model.zip")
    given = {"policy_kwargs.features_extractor_class": Measured}
    loaded = DistributionalPPO.load(tmp_path / "model.zip", env=make_envs(), device="cpu", custom_objects=given)
    loaded.learn(48)
    content: Any = load_container(tmp_path / "model.zip")
    content["settings"]["n_quantiles"] = 9
    save_container(tmp_path / "model.zip", content)
    with pytest.raises(CheckpointError, match=r"model\.zip: policy\['value_net"):
        DistributionalPPO.load(tmp_path / "model.zip", device="cpu", custom_objects=given)


@pytest.mark.parametrize("value", [3, -1])
@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.MultiDiscrete([3, 2])], ids=str)
def test_an_observation_that_the_space_does_not_have_is_refused(space: Any, value: int, tmp_path: Path) -> None:
    model = make_model(DummyVecEnv([lambda: ResumableEnv(Echo(space, spaces.Discrete(2)))]))
    model.learn(24)
    model.save(tmp_path / "model.zip")
    content: Any = load_container(tmp_path / "model.zip")
    content["state"]["lstm_state"]["observations"].fill_(value)
    save_container(tmp_path / "model.zip", content)
    with pytest.raises(CheckpointError, match=r"model\.zip: lstm_state\['observations'\] holds other values than"):
        DistributionalPPO.load(tmp_path / "model.zip", device="cpu")
