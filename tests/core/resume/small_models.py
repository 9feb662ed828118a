"""Small models of Stable-Baselines3 for the tests of what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.noise import OrnsteinUhlenbeckActionNoise
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
