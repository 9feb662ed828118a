"""Small models of Stable-Baselines3 for the tests of what is refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.noise import OrnsteinUhlenbeckActionNoise
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.vec_env import VecEnv

from tests.support.environments import make_vec


def net() -> dict[str, Any]:
    """Settings of a small network, of which Stable-Baselines3 changes ``policy_kwargs``."""
    return {"policy_kwargs": {"net_arch": [4]}, "device": "cpu", "seed": 3}


def ppo(env: VecEnv | None = None, **settings: Any) -> PPO:
    return PPO("MlpPolicy", env or make_vec(), **{**net(), "n_steps": 8, "batch_size": 4, "n_epochs": 1, **settings})


def sac(env: Any = None, **settings: Any) -> SAC:
    env = env or make_vec("Pendulum-v1")
    policy = "MultiInputPolicy" if isinstance(env.observation_space, spaces.Dict) else "MlpPolicy"
    return SAC(policy, env, **{**net(), "buffer_size": 40, "learning_starts": 4, "batch_size": 4, **settings})


def noisy() -> SAC:
    return sac(action_noise=OrnsteinUhlenbeckActionNoise(np.zeros(1), np.full(1, 0.1))).learn(16)


def trained(kind: type[PPO]) -> Callable[[], Any]:
    return lambda: kind("MlpPolicy", make_vec(), **net(), n_steps=8, batch_size=8, n_epochs=1).learn(8)


class Stateless:
    """What a wrapper that keeps nothing says."""

    def get_state(self) -> Any:
        return {}

    def set_state(self, state: Any) -> None:
        pass


class Extractor(FlattenExtractor):
    """Keeps what is in no state dictionary."""

    def __init__(self, space: Any) -> None:
        super().__init__(space)
        self.calls = 0
        self.generator = np.random.default_rng(0)
        self.mean = torch.zeros(2)
        self.function = torch.cos
        self.counter = itertools.count()
        self.register_buffer("last", torch.zeros(2), persistent=False)


def changed(change: Callable[[Any], object]) -> Callable[[], Any]:
    """A model to whose policy something was done after it was built."""

    def make() -> PPO:
        model = ppo(policy_kwargs={"net_arch": [4], "features_extractor_class": Extractor})
        change(model.policy)
        return model

    return make


def ruled(change: Callable[[Any], object], build: Callable[[], Any] = ppo) -> Callable[[], Any]:
    """A model to which something was done after it was built."""

    def make() -> Any:
        model = build()
        change(model)
        return model

    return make


class Keeps(FlattenExtractor):
    """Keeps what a function makes."""

    def __init__(self, space: Any, make: Callable[[], Any]) -> None:
        super().__init__(space)
        self.kept = make()


def keeping(make: Callable[[], Any], use: Callable[[Any], object] = lambda kept: kept()) -> Callable[[], Any]:
    def build() -> PPO:
        model = ppo(policy_kwargs={"features_extractor_class": Keeps, "features_extractor_kwargs": {"make": make}})
        use(model.policy.features_extractor.kept)  # type: ignore[attr-defined]
        return model

    return build


class Counter:
    """Counts in an attribute."""

    def __init__(self) -> None:
        self.n = 0

    def __call__(self, progress: float = 1.0) -> float:
        self.n += 1
        return 1e-3 * progress

    def next(self) -> int:
        self.n += 1
        return self.n
