"""Files that are damaged, foreign or out of reach: one error names the file and the field, and nothing changes."""

from __future__ import annotations

import copy
import io
import math
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv
from torch import Tensor, nn

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
from rlcore.checkpoint.codec import encode
from rlcore.checkpoint.container import load_container, save_container
from tests.support.space_cases import KEYED, Echo
from tests.support.training import differing, make_envs, make_model

MODELS: dict[str, dict[str, Any]] = {
    "adam": {"optimizer_class": "adam"},
    "adamw": {"optimizer_class": "adamw"},
    "adaptive_upgd": {"optimizer_class": "adaptive_upgd"},
    "upgd": {"optimizer_class": "upgd"},
    "sgd": {"optimizer_class": "sgd", "optimizer_kwargs": {"momentum": 0.9}},
    "rmsprop": {"optimizer_class": "rmsprop", "optimizer_kwargs": {"momentum": 0.9}},
    "atoms": {"value_distribution": "categorical", "num_atoms": 8, "v_min": 0.0, "v_max": 60.0, "n_quantiles": 32},
    "keyed": {"policy": "MultiInputLstmPolicy"},
}
MOMENTS = {
    "adaptive_upgd": ("utility", "first_moment", "second_moment"),
    "upgd": ("utility",),
    "adam": ("exp_avg", "exp_avg_sq"),
    "adamw": ("exp_avg", "exp_avg_sq"),
    "sgd": ("momentum_buffer",),
    "rmsprop": ("square_avg", "momentum_buffer"),
}
DROP = object()


def envs(kind: str) -> VecEnv:
    return make_envs(KEYED, 2, normalize=True) if kind == "keyed" else make_envs(normalize=True)


@cache
def file_of(kind: str) -> bytes:
    file = io.BytesIO()
    make_model(envs(kind), **MODELS[kind]).learn(96).save(file)
    return file.getvalue()


@cache
def taker_of(kind: str) -> DistributionalPPO:
    """A model that no damaged state changes."""
    return DistributionalPPO.load(io.BytesIO(file_of(kind)), env=envs(kind), device="cpu")


@cache
def content_of(kind: str) -> Any:
    """Treat as read-only: reading a file takes longer than what is tested."""
    return load_container(io.BytesIO(file_of(kind)))


def damaged(kind: str, place: tuple[Any, ...], value: Any) -> Any:
    """What a file holds with another value at a place; shares what is not on the way to it."""
    content = owner = copy.copy(content_of(kind))
    for key in place[:-1]:
        owner[key] = copy.copy(owner[key])
        owner = owner[key]
    if value is DROP:
        del owner[place[-1]]
    else:
        owner[place[-1]] = value(owner[place[-1]]) if callable(value) else value
    return content


def filled(number: float, dtype: torch.dtype | None = None) -> Callable[[Tensor], Tensor]:
    return lambda old: torch.full_like(old, number, dtype=dtype)


def without(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda old: {key: value for key, value in old.items() if key != name}


NAN, LONG = float("nan"), "x" * 100_000
WRONG_TENSORS: list[Any] = [
    *(None, [], 1.0, filled(NAN), filled(float("-inf")), filled(1e300, torch.float64), filled(0, torch.int64)),
    *(lambda _: torch.zeros(2, 2, 2), lambda _: torch.tensor(0.0)),
]
WRONG_COUNTS = [None, -1, 0.5, NAN, 2**70, True, "8", [8], *map(torch.tensor, (-1.0, 4, [1.0, 1.0]))]
BIAS = ("policy", "action_net.bias")
OPTIMIZER, GROUPS = ("policy.optimizer",), ("policy.optimizer", "param_groups")
MOMENTS_OF_FIRST = (*OPTIMIZER, "state", 0)
PROGRESS, RANDOM, POSITION, ENVIRONMENTS = "progress_state", "rng_state", "lstm_state", ("env_state", "environments")
CLASS = {"__kind__": "class", "name": "torch.nn.Tanh"}

# Of what was learnt: refused by set_parameters(), too.
LEARNT: list[tuple[str, tuple[Any, ...], Any, str]] = [
    *(("adam", BIAS, value, "policy") for value in WRONG_TENSORS),
    *((kind, (*MOMENTS_OF_FIRST, name), value, name) for kind, names in MOMENTS.items() for name in names
      for value in WRONG_TENSORS if (kind, value) != ("sgd", None)),  # which torch has of one without momentum
    *((kind, (*MOMENTS_OF_FIRST, name), filled(-1e-9), "holds a number below 0")
      for kind, name in (("adaptive_upgd", "second_moment"), ("adam", "exp_avg_sq"), ("rmsprop", "square_avg"))),
    *((kind, (*MOMENTS_OF_FIRST, "step"), value, "'step'") for kind in MOMENTS if kind != "sgd"
      for value in WRONG_COUNTS),
    *(("adam", (*GROUPS, 0, "params"), lambda old, wrong=wrong: [*wrong, *old[2:]], "param_groups")
      for wrong in ([0, 0], [[], 1], ["0", 1], [True, 0])),
    *(("adaptive_upgd", (*GROUPS, 1, name), value, name) for name in ("lr", "initial_lr", "seed")
      for value in (None, -1, "x", NAN, float("inf"), True, torch.ones(2))),
    ("adam", (*OPTIMIZER, "state"), [], "optimizer"), ("adam", MOMENTS_OF_FIRST, 1, "optimizer"),
    ("adam", (*OPTIMIZER, "state", 999), {}, "optimizer"),
    *(("adam", GROUPS, value, "optimizer") for value in ([1, 2], 3, [])),
    ("adam", OPTIMIZER, DROP, "optimizer"), ("adam", ("policy",), {}, "policy"),
    ("adam", ("vgs_stat",), {}, "vgs_stat"),
    *(("adam", ("vgs_state", "step_count"), value, "step_count") for value in ("8", 2**70, DROP)),
    ("adam", ("vgs_state",), 3, "vgs_state"), ("adam", ("return_scale_state",), None, "return_scale"),
    ("adam", ("return_scale_state", "std_snapshot"), 0.0, "std_snapshot"),
    ("adam", ("return_scale_state", "mean"), 1e308, "mean"),
    ("adam", ("normalizer_state", "layers", 0, "observation", 0, "mean"), torch.zeros(3).double(), "mean"),
    *(("atoms", ("policy", "value_support"), value, "value_support") for value in (lambda old: old[:-1],
      lambda old: 10 * old, DROP)),
]  # fmt: skip
# Of where the run is.
OF_RUN: list[tuple[str, tuple[Any, ...], Any, str]] = [
    ("adam", (*MOMENTS_OF_FIRST, "exp_avg"), DROP, "optimizer"),
    *(("adam", (PROGRESS, name), value, name) for name in ("num_timesteps", "_n_updates")
      for value in ("abc", -1, 2**70)),
    *(("adam", (PROGRESS, "_current_progress_remaining"), value, PROGRESS) for value in ("x", NAN, 1.5, -0.5)),
    *(("adam", (PROGRESS, "ep_info_buffer"), value, "ep_info_buffer")
      for value in ([1, 2], lambda old: [{**old[0], "l": "9"}], lambda old: [without("r")(old[0])])),
    *(("adam", (PROGRESS, "ep_success_buffer"), value, "ep_success_buffer")
      for value in (None, 1, ["x"], [[1.0, 2.0], 2.0], [[[1.0], 2.0]], [[]])),
    ("adam", (RANDOM,), {}, RANDOM), ("adam", (RANDOM, "torch"), torch.zeros(3, dtype=torch.uint8), RANDOM),
    ("adam", (RANDOM, "python"), [3, [1, 2], None], RANDOM), ("adam", (RANDOM, "python", 2), "x", RANDOM),
    ("adam", (RANDOM, "numpy", 0), torch.zeros(0, dtype=torch.int64), RANDOM),
    ("adam", (RANDOM, "numpy", 1), 10**6, RANDOM),
    ("adam", (POSITION,), {}, POSITION), ("adam", (POSITION, "actor"), [], POSITION),
    ("adam", (POSITION, "critic", 0), torch.zeros(1, 3, 5), POSITION),
    ("adam", (POSITION, "actor", 0), filled(NAN), "actor.*NaN"),
    ("adam", (POSITION, "observations"), torch.zeros(3, 5), POSITION),
    ("adam", (POSITION, "observations"), filled(NAN), "observations.* NaN"),
    ("adam", (POSITION, "episode_starts"), torch.zeros(3, 1), POSITION),
    ("adam", ("env_state",), {}, "env_state"),
    ("adam", (*ENVIRONMENTS, 0, "layers", 0, "state"), {"needs_reset": True}, "env_state"),
    *(("adam", (*ENVIRONMENTS, 1, "layers", layer, "state", name), value, "env_state.*not reset")
      for layer, name, value in ((1, "_elapsed_steps", None), (2, "_has_reset", False), (4, "state", None))),
    ("adam", ENVIRONMENTS, lambda old: old[:-1], "lstm_state and env_state are of different numbers"),
    *(("keyed", (POSITION, "observations"), value, "observations")
      for value in (without("mask"), lambda old: {**old, "more": torch.zeros(2)}, lambda _: torch.zeros(2, 3))),
    *(("keyed", (POSITION, "observations", "mask"), value, "observations") for value in (torch.zeros(2, 5), {"x": 1})),
    *(("keyed", (POSITION, name, key), value, "observations") for name in ("observations", "original_observations")
      for key, value in (("kind", torch.zeros(3)), ("mask", "x"), ("counter", lambda old: {**old, "shape": [2, 3]}),
                         ("counter", CLASS))),
]  # fmt: skip
# Of the model itself.
OF_MODEL: list[tuple[str, tuple[Any, ...], Any, str]] = [
    *(("adam", ("n_envs",), value, "n_envs") for value in (DROP, 0, True)), ("adam", ("extra",), 1, "extra"),
    ("adam", ("algorithm",), "SAC", "SAC"), ("adam", ("own_settings",), [1], "settings"),
    ("adam", ("format_version",), "model_v9", "model_v9"), ("adam", ("settings",), 3, "settings"),
    *(("adam", ("policy_class",), value, "policy") for value in ({"lstm_hidden_size": 8}, CLASS)),
    *(("adam", ("observation_space",), value, "observation|space|policy") for value in (
        None, {"__kind__": "code", "text": "1"}, {"__kind__": "MultiBinary", "n": 2**70},
        encode(spaces.Tuple([spaces.Discrete(2)]), ""), encode(spaces.Dict({"x": spaces.Discrete(2)}), ""))),
    *(("adam", ("action_space",), value, "[aA]ction") for value in (3, encode(spaces.Tuple([spaces.Discrete(2)]), ""))),
    *(("adam", ("settings", name), value, words) for name, value, words in (
        ("vgs_gamma", 1, "vgs_gamma"), ("n_steps", 0, "n_steps"), ("n_steps", 10**13, "asks for a model larger"),
        ("n_quantiles", 2**63, "n_quantiles"), ("learning_rate", LONG, "learning_rate"), ("optimizer_class", LONG, ""),
        ("optimizer_kwargs", {"eps": LONG}, "eps"), ("optimizer_kwargs", {"betas": None}, "optimizer_kwargs"),
        *(("optimizer_kwargs", option, "would ascend the loss or give NaN") for option in (
            {"maximize": True}, {"weight_decay": math.inf}, {"eps": torch.tensor(math.nan)})),
        ("clip_range", {"__kind__": "FloatSchedule"}, "clip_range"))),
]  # fmt: skip
FILES = [*((kind, ("state", *place), value, words) for kind, place, value, words in [*LEARNT, *OF_RUN]), *OF_MODEL]


@pytest.mark.parametrize(("kind", "place", "value", "words"), FILES)
def test_damage_is_one_short_error_with_file_and_field(
    kind: str, place: tuple[Any, ...], value: Any, words: str, tmp_path: Path
) -> None:
    edited = io.BytesIO()
    save_container(edited, damaged(kind, place, value))
    (tmp_path / "edited.zip").write_bytes(edited.getbuffer())  # without waiting for the disk
    with pytest.raises(CheckpointError, match=rf"edited\.zip: .*({words})") as caught:
        DistributionalPPO.load(tmp_path / "edited.zip", env=envs(kind), device="cpu")
    assert len(str(caught.value)) <= 500
    assert str(caught.value).isprintable()
    if place[:2] == ("state", "policy"):
        with pytest.raises(CheckpointError, match=r"edited\.zip: "):
            load_policy(tmp_path / "edited.zip")


@pytest.mark.filterwarnings("ignore::rlcore.ResumeWarning")  # of a cast
@pytest.mark.parametrize(("kind", "place", "value", "words"), LEARNT)
def test_damaged_parameters_change_nothing(kind: str, place: tuple[Any, ...], value: Any, words: str) -> None:
    taker, state = taker_of(kind), damaged(kind, ("state", *place), value)["state"]
    before = taker.get_parameters()
    given = {key: part for key, part in state.items() if key in before or key == place[0]}
    with pytest.raises(StateError, match=words):
        taker.set_parameters(given)
    assert differing(before, taker.get_parameters()) == []


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    (tmp_path / "healthy.zip").write_bytes(file_of("adam"))
    return tmp_path / "healthy.zip"


def test_what_a_file_lacks_is_one_warning(tmp_path: Path) -> None:
    lacking = ("vgs_state", "progress_state", "env_state", "lstm_state", "rng_state")
    content: Any = load_container(io.BytesIO(file_of("adam")))
    for key in lacking:
        del content["state"][key]
    save_container(tmp_path / "edited.zip", content)
    with pytest.warns(ResumeWarning, match=f"no state for {', '.join(lacking)}") as caught:
        loaded = DistributionalPPO.load(tmp_path / "edited.zip", env=envs("adam"), device="cpu")
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
    said = r"sb3\.zip: is a file of Stable-Baselines3's save\(\).*load\(\) of the class"
    with pytest.raises(CheckpointError, match=said):
        READS[use](tmp_path / "sb3.zip")


def test_an_environment_with_other_spaces_is_no_damage(tmp_path: Path) -> None:
    make_model().save(tmp_path / "model.zip")
    with pytest.raises(
        CheckpointError, match=r"observation_space is Box.*this environment's Box.*give the one"
    ) as refusal:
        DistributionalPPO.load(tmp_path / "model.zip", env=make_envs("Pendulum-v1"))
    assert "damaged" not in str(refusal.value)


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
