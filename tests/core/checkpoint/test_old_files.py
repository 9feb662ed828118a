"""Files in ``tests/data`` that the code at commit 14de2fa2 wrote, one of each kind: every later version reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.utils import ConstantSchedule, FloatSchedule, LinearSchedule

from rlcore import DistributionalPPO, load_checkpoint, load_policy
from rlcore.checkpoint import codec
from rlcore.checkpoint.container import load_container
from rlcore.errors import ResumeWarning
from rlcore.resume import load_exact
from tests.support.training import differing, make_envs, make_model

DATA = Path(__file__).parents[2] / "data"
SETTINGS: dict[str, Any] = {
    "plain": [None, True, 7, 0.5, "text", {"a": [1]}],
    "tuple": (1, ("a", 2.5)),
    "array": np.arange(6, dtype=np.uint16).reshape(2, 3),
    "tensor": torch.arange(3, dtype=torch.bfloat16),
    "device": torch.device("cuda:1"),
    "dtype": torch.float16,
    "box": spaces.Box(np.array([-np.inf, 0.0]), np.array([1.0, np.inf]), dtype=np.float64),
    "integers": spaces.Box(-np.inf, 9, (2,), np.int64),
    "image": spaces.Box(0, 255, (2, 2, 3), np.uint8),
    "discrete": spaces.Discrete(3, start=-1),
    "multi_discrete": spaces.MultiDiscrete(
        np.array([[2, 3], [4, 5]]), dtype=np.int32, start=np.array([[0, 1], [2, 3]])
    ),
    "multi_binary": spaces.MultiBinary([2, 3]),
    "dict": spaces.Dict({"b": spaces.Discrete(2), "a": spaces.MultiBinary(4)}),
    "tuple_space": spaces.Tuple([spaces.Discrete(2)]),
    "float": FloatSchedule(LinearSchedule(1.0, 0.1, 0.5)),
    "constant": ConstantSchedule(0.3),
    "linear": LinearSchedule(1e-3, 1e-5, 0.4),
    "class": torch.nn.Tanh,
}


def test_a_model_is_loaded_and_continues() -> None:
    model = DistributionalPPO.load(DATA / "model_v1.zip", make_envs(n_envs=1, normalize=True), device="cpu")
    assert model.num_timesteps == 32
    weights: Any = load_checkpoint(DATA / "checkpoint_v2.pt").data["policy"]
    assert differing(dict(model.policy.state_dict()), dict(weights)) == []
    model.learn(16, reset_num_timesteps=False)
    assert model.num_timesteps == 48


def test_a_policy_is_loaded_from_a_model() -> None:
    actions, _ = load_policy(DATA / "model_v1.zip").predict(np.zeros((1, 4), np.float32))
    assert actions.shape == (1,)


@pytest.mark.parametrize("name", ["checkpoint_v2.pt", "checkpoint_v2_sha256.pt"])
def test_a_v2_checkpoint_is_read_and_fits_a_model(name: str) -> None:
    checkpoint = load_checkpoint(DATA / name, require_digest=True)
    assert (checkpoint.step, checkpoint.performance) == (32, 1.5)
    small = {"policy_kwargs": {"lstm_hidden_size": 2, "net_arch": [2]}, "n_quantiles": 2}
    model = make_model(make_envs(n_envs=1, normalize=True), **small)
    model.set_parameters(checkpoint.data)
    assert differing(dict(model.policy.state_dict()), dict(checkpoint.data["policy"])) == []  # type: ignore[arg-type]


def test_a_v1_file_is_read_with_a_warning() -> None:
    with pytest.warns(ResumeWarning, match="v1_policy_only"):
        old: Any = load_checkpoint(DATA / "policy_v1.pt").data["policy"]
    new: Any = load_checkpoint(DATA / "checkpoint_v2.pt").data["policy"]
    assert differing(dict(old), dict(new)) == []


def test_a_model_of_stable_baselines_is_loaded_and_continues() -> None:
    model = load_exact(DATA / "exact_v1.zip", make_envs(n_envs=1))
    assert model.num_timesteps == 32
    model.learn(16, reset_num_timesteps=False)
    assert model.num_timesteps == 48


@pytest.mark.parametrize("name", SETTINGS)
def test_every_form_of_a_setting_is_read(name: str) -> None:
    found: Any = codec.decode(load_container(DATA / "settings.pt")[name], name, {})
    assert type(found) is type(SETTINGS[name])
    assert codec.same(codec.encode(found, name), codec.encode(SETTINGS[name], name))
    assert repr(found) == repr(SETTINGS[name])
