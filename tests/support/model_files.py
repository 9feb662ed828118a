"""Model files of Stable-Baselines3 and sb3-contrib, saved by real models, and copies that are changed."""

from __future__ import annotations

import base64
import copy
import io
import json
import zipfile
from collections.abc import Callable
from functools import cache
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from sb3_contrib import QRDQN, TQC, TRPO, MaskablePPO, RecurrentPPO
from sb3_contrib.common.wrappers import ActionMasker
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3

SMALL: dict[str, Any] = {"policy_kwargs": {"net_arch": [8]}}
ON_POLICY: dict[str, Any] = {**SMALL, "n_steps": 16}
OFF_POLICY: dict[str, Any] = {**SMALL, "learning_starts": 8, "batch_size": 8, "buffer_size": 100, "train_freq": 4}

ALGORITHMS: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "PPO": (PPO, "CartPole-v1", {**ON_POLICY, "batch_size": 8, "n_epochs": 2}),
    "A2C": (A2C, "CartPole-v1", ON_POLICY),
    "TRPO": (TRPO, "CartPole-v1", {**ON_POLICY, "batch_size": 8}),
    "MaskablePPO": (MaskablePPO, "CartPole-v1", {**ON_POLICY, "batch_size": 8}),
    "RecurrentPPO": (RecurrentPPO, "CartPole-v1", {**ON_POLICY, "batch_size": 8}),
    "DQN": (DQN, "CartPole-v1", OFF_POLICY),
    "QRDQN": (QRDQN, "CartPole-v1", OFF_POLICY),
    "SAC": (SAC, "Pendulum-v1", OFF_POLICY),
    "SAC, fixed coefficient": (SAC, "Pendulum-v1", {**OFF_POLICY, "ent_coef": 0.1}),
    "TD3": (TD3, "Pendulum-v1", OFF_POLICY),
    "TQC": (TQC, "Pendulum-v1", OFF_POLICY),
}
"""Class, environment and settings by name."""

CHANGED = {"gamma": 0.5, "learning_rate": 0.002}
"""Settings of the saved models that differ from those of new ones."""


def new_model(name: str, seed: int = 1, **changes: Any) -> Any:
    """An untrained small model."""
    algorithm, env_id, settings = ALGORITHMS[name]
    env = gym.make(env_id)
    if name == "MaskablePPO":
        env = ActionMasker(env, lambda _: np.ones(2, dtype=bool))
    policy = "MlpLstmPolicy" if name == "RecurrentPPO" else "MlpPolicy"
    return algorithm(policy, env, **{"seed": seed, "device": "cpu", **copy.deepcopy(settings), **changes})


@cache
def trained_model(name: str) -> Any:
    """A model whose weights and optimizer states moved; do not change it."""
    model = new_model(name, seed=5, **CHANGED)
    return model.learn(32)


@cache
def model_file(name: str) -> bytes:
    """The file of the trained model."""
    file = io.BytesIO()
    trained_model(name).save(file)
    return file.getvalue()


def changed_file(content: bytes, **members: Callable[[Any], Any] | bytes | None) -> bytes:
    """A copy of a model file with other members.

    :param members: by name, where ``__`` stands for a dot: the new bytes; None to leave it out; or a function of the
        JSON of ``data`` or the state of a ``.pth``, which may change it in place and return nothing
    """
    file = io.BytesIO()
    changes = {name.replace("__", "."): change for name, change in members.items()}
    with zipfile.ZipFile(io.BytesIO(content)) as before, zipfile.ZipFile(file, "w") as after:
        for name in dict.fromkeys([*before.namelist(), *changes]):
            change = changes[name] if name in changes else before.read(name)
            if callable(change):
                change = _changed_json(before, change) if name == "data" else _changed_state(before, name, change)
            if change is not None:
                after.writestr(name, change)
    return file.getvalue()


def _changed_json(archive: zipfile.ZipFile, change: Callable[[Any], Any]) -> str:
    fields = json.loads(archive.read("data"))
    return json.dumps(change(fields) or fields)


def _changed_state(archive: zipfile.ZipFile, name: str, change: Callable[[Any], Any]) -> bytes:
    state = torch.load(io.BytesIO(archive.read(name)), weights_only=True)
    file = io.BytesIO()
    torch.save(change(state) or state, file)
    return file.getvalue()


def serialized(pickled: bytes) -> dict[str, str]:
    """A field of ``data`` that Stable-Baselines3 would unpickle."""
    return {":type:": "x", ":serialized:": base64.b64encode(pickled).decode()}


def two_archives(first: bytes, second: bytes) -> bytes:
    """Bytes in which torch finds the first archive and `zipfile` the second.

    Both have the same names of members, and the second is not smaller.
    """
    end = first.rfind(b"PK\5\6")
    directory, place = (int.from_bytes(each[each.rfind(b"PK\5\6") + 16 :][:4], "little") for each in (first, second))
    return first[:directory].ljust(place, b"\0") + first[directory:end] + second
