"""Environments, runs and states that the tests of saved environments share."""

from __future__ import annotations

import copy
import io
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecEnv

from rlcore.envs.resumable import ResumableEnv
from rlcore.errors import StateError
from rlcore.types import StateDict


def make(env_id: str, **settings: Any) -> ResumableEnv:
    return ResumableEnv(Monitor(gym.make(env_id, **settings)))


def through_file(state: StateDict | None) -> StateDict:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded: StateDict = torch.load(file, weights_only=True)
    return loaded


def bits(value: Any) -> Any:
    """What two runs must agree on to the bit; the wall clock of the monitors is left out."""
    if isinstance(value, dict):
        return {key: bits(entry) for key, entry in value.items() if key != "t"}
    if isinstance(value, list | tuple):
        return [bits(entry) for entry in value]
    return (type(value).__name__, np.asarray(value).dtype.str, np.asarray(value).tobytes())


def actions_for(space: spaces.Space[Any], steps: int) -> list[Any]:
    space.seed(7)
    return [space.sample() for _ in range(steps)]


def run(env: gym.Env[Any, Any], actions: list[Any]) -> list[Any]:
    """Step, reset at the end of an episode; return everything seen."""
    seen = []
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        seen.append(bits((observation, reward, terminated, truncated, info)))
        if terminated or truncated:
            seen.append(bits(env.reset()))
    return seen


def run_vec(env: VecEnv, actions: list[Any]) -> list[Any]:
    return [bits(env.step(np.stack([action] * env.num_envs))) for action in actions]


def snapshot(env: gym.Env[Any, Any]) -> Any:
    return bits_of_state(env.get_wrapper_attr("get_state")())


def bits_of_state(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: bits_of_state(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [bits_of_state(entry) for entry in value]
    if isinstance(value, torch.Tensor):
        return (str(value.dtype), tuple(value.shape), value.numpy().tobytes())
    return (type(value).__name__, value)


def edit(state: StateDict, path: list[str | int], value: Any) -> StateDict:
    changed: Any = copy.deepcopy(state)
    target = changed
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    return changed  # type: ignore[no-any-return]


def make_vec(env_id: str = "CartPole-v1", n_envs: int = 2, seed: int | None = 5, **settings: Any) -> VecEnv:
    return make_vec_env(env_id, n_envs, seed=seed, wrapper_class=ResumableEnv, **settings)


class Custom(gym.Env[Any, Any]):
    """A counter with the contract of its own."""

    observation_space = spaces.Box(0, 1e6, (1,), np.float32)
    action_space = spaces.Discrete(2)
    count = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        return np.array([self.count], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1 + int(action)
        return np.array([self.count], np.float32), float(self.count), self.count % 9 == 0, False, {}

    def get_state(self) -> StateDict:
        return {"count": self.count}

    def set_state(self, state: StateDict) -> None:
        if not isinstance(state.get("count"), int):
            raise StateError(f"count is {state.get('count')!r}, an integer is needed")
        self.count = state["count"]  # type: ignore[assignment]


class Halving(gym.RewardWrapper[Any, Any]):
    """A wrapper with a state of its own."""

    scale = 1.0

    def reward(self, reward: Any) -> float:
        self.scale /= 2
        return float(reward) * self.scale

    def get_state(self) -> StateDict:
        return {"scale": self.scale}

    def set_state(self, state: StateDict) -> None:
        if not isinstance(state.get("scale"), float):
            raise StateError(f"scale is {state.get('scale')!r}, a float is needed")
        self.scale = state["scale"]  # type: ignore[assignment]


class Silent(gym.Wrapper[Any, Any, Any, Any]):
    """A wrapper that nothing is known about."""


class TunedCartPole(CartPoleEnv):
    """A subclass may keep more than its parent."""


class Parts(gym.ObservationWrapper[Any, Any, Any]):
    """Pendulum's direction and speed under names of their own."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        low, high = env.observation_space.low, env.observation_space.high  # type: ignore[attr-defined]
        self.observation_space = spaces.Dict(
            direction=spaces.Box(low[:2], high[:2]), speed=spaces.Box(low[2:], high[2:])
        )

    def observation(self, observation: Any) -> Any:
        return {"direction": observation[:2], "speed": observation[2:]}
