"""Environments of MuJoCo resume exactly, also where a step reads what another has left behind."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv
from stable_baselines3 import PPO
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv

from rlcore import ResumableEnv
from rlcore.errors import SettingError, StateError
from rlcore.resume import continue_learning, load_exact, resumable_mujoco, save_exact

ALL = [
    *("Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5", "HumanoidStandup-v5", "InvertedDoublePendulum-v5"),
    *("InvertedPendulum-v5", "Pusher-v5", "Reacher-v5", "Swimmer-v5", "Walker2d-v5"),
]


def stepped(env: gym.Env[Any, Any], number: int, seed: int) -> list[Any]:
    """What some random actions give, with resets at ends of episodes."""
    random = np.random.default_rng(seed)
    found: list[Any] = []
    for _ in range(number):
        action = random.uniform(-1, 1, env.action_space.shape).astype(np.float32)  # type: ignore[arg-type]
        observation, reward, terminated, truncated, _ = env.step(action)
        found += [observation.tobytes(), reward]
        if terminated or truncated:
            found.append(env.reset()[0].tobytes())
    return found


@pytest.mark.parametrize("name", ALL)
def test_a_new_environment_continues_where_the_state_was_taken(name: str) -> None:
    first, second = resumable_mujoco(gym.make(name)), resumable_mujoco(gym.make(name))
    first.reset(seed=3)
    stepped(first, 25, 0)
    second.set_state(first.get_state())
    assert stepped(first, 60, 1) == stepped(second, 60, 1)


def test_the_state_is_a_copy() -> None:
    env = resumable_mujoco(gym.make("Hopper-v5"))
    env.reset(seed=0)
    state = env.get_state()
    expected = stepped(env, 20, 0)
    env.set_state(state)
    assert stepped(env, 20, 0) == expected


@pytest.mark.parametrize("kind", [DummyVecEnv, pytest.param(SubprocVecEnv, marks=pytest.mark.slow)])
def test_training_continues_exactly(kind: type[VecEnv], tmp_path: Path) -> None:
    def made() -> ResumableEnv:
        return resumable_mujoco(Monitor(gym.make("Ant-v5", max_episode_steps=20)))

    models = []
    for _ in range(2):
        env = kind([made] * 2)  # type: ignore[call-arg]
        models.append(PPO("MlpPolicy", env, n_steps=16, batch_size=16, n_epochs=1, seed=0))
    models[0].learn(32)
    save_exact(models[0], tmp_path / "half")
    continue_learning(models[0], 96)
    loaded = load_exact(tmp_path / "half.zip", models[1].get_env())  # type: ignore[arg-type]
    continue_learning(loaded, 96)
    pairs = zip(models[0].policy.parameters(), loaded.policy.parameters(), strict=True)
    assert all(one.equal(other) for one, other in pairs)
    for model in models:
        model.get_env().close()


class Counting(HalfCheetahEnv):
    """May keep more than its simulation."""


def test_another_class_is_refused_until_the_caller_gives_his_word() -> None:
    with pytest.raises(SettingError, match=r"Counting is not one of gymnasium\.envs\.mujoco and may keep more"):
        resumable_mujoco(Counting())
    with pytest.raises(SettingError, match="CartPoleEnv is no environment of MuJoCo"):
        resumable_mujoco(gym.make("CartPole-v1"))
    env = resumable_mujoco(Counting(), keeps_nothing_else=True)
    env.reset(seed=0)
    state, expected = env.get_state(), stepped(env, 10, 0)
    env.set_state(state)
    assert stepped(env, 10, 0) == expected


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda arrays: arrays.pop("qpos"), "'qpos'"),
        (lambda arrays: arrays.update(qpos=torch.zeros(3)), r"qpos.* with shape \(6,\)"),
        (lambda arrays: arrays.update(qpos=None), r"qpos.* with shape \(6,\)"),
    ],
)
def test_a_damaged_state_is_refused_and_changes_nothing(change: Any, reason: str) -> None:
    env = resumable_mujoco(gym.make("Hopper-v5"))
    env.reset(seed=0)
    state: Any = env.get_state()
    before = stepped(env, 5, 0)
    env.set_state(state)
    damaged = copy.deepcopy(state)
    damaged["layers"][-1]["state"]["time"] = 9.0
    change(damaged["layers"][-1]["state"]["arrays"])
    with pytest.raises(StateError, match=reason):
        env.set_state(damaged)
    assert env.unwrapped.data.time == state["layers"][-1]["state"]["time"]  # type: ignore[attr-defined]
    assert stepped(env, 5, 0) == before


def test_an_unknown_wrapper_is_refused() -> None:
    with pytest.raises(SettingError, match="RecordEpisodeStatistics"):
        resumable_mujoco(gym.wrappers.RecordEpisodeStatistics(gym.make("Hopper-v5")))
