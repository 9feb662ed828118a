"""Environments that pay otherwise than they are known for."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv

from rlcore import ResumableEnv


class Millions(gym.RewardWrapper[Any, Any]):
    """A million times the reward."""

    def reward(self, reward: Any) -> float:
        return 1e6 * float(reward)

    def get_state(self) -> dict[str, Any]:
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        assert state == {}


def paying_millions() -> VecEnv:
    """Three of CartPole."""
    envs: VecEnv = make_vec_env("CartPole-v1", n_envs=3, seed=0, wrapper_class=lambda env: ResumableEnv(Millions(env)))
    return envs
