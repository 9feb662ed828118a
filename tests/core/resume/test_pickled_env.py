"""Environments without a state of their own resume exactly from a pickle, if their user has chosen to trust it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.utils import EzPickle
from sb3_contrib import MaskablePPO
from sb3_contrib.common.envs import InvalidActionEnvDiscrete
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv

from rlcore import ResumableEnv
from rlcore.errors import CheckpointError, SettingError, StateError
from rlcore.resume import PickledEnv, continue_learning, load_exact, save_exact
from tests.support.exact_runs import differences, finished


class Drifting(gym.Env[Any, Any]):
    """A walk with more state than any form knows: a list of what was seen, which is part of the reward."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self) -> None:
        self.seen: list[float] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:  # noqa: ARG002
        super().reset(seed=seed)
        self.seen = [float(self.np_random.normal())]
        return self.observation(), {}

    def observation(self) -> Any:
        return np.array([self.seen[-1], len(self.seen)], np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.seen.append(self.seen[-1] * 0.9 + float(self.np_random.normal()) + float(action))
        return self.observation(), sum(self.seen), len(self.seen) == 11, False, {}

    def action_masks(self) -> Any:
        return np.array([True, len(self.seen) % 2 == 0])


class Unpicklable(Drifting):
    def __init__(self) -> None:
        super().__init__()
        self.rule = lambda: None


class Rebuilt(Drifting, EzPickle):
    """Its pickle is made again from the arguments of its constructor, of which there are none."""

    def __init__(self) -> None:
        EzPickle.__init__(self)
        Drifting.__init__(self)


def made() -> ResumableEnv:
    return ResumableEnv(Monitor(PickledEnv(gym.wrappers.TimeLimit(Drifting(), 9))))


def model_in(env: VecEnv) -> PPO:
    return PPO("MlpPolicy", env, n_steps=7, batch_size=7, n_epochs=1, policy_kwargs={"net_arch": [4]}, seed=3)


def parameters(model: Any) -> list[Any]:
    return [each.detach().clone() for each in model.policy.parameters()]


@pytest.mark.parametrize("kind", [DummyVecEnv, partial(SubprocVecEnv, start_method="fork")], ids=["here", "workers"])
def test_a_run_continues_exactly_from_the_middle_of_an_episode(kind: Callable[..., VecEnv], tmp_path: Path) -> None:
    envs = [kind([made] * 2) for _ in range(2)]
    model = model_in(envs[0]).learn(28)
    save_exact(model, tmp_path / "half")
    continue_learning(model, 56)
    loaded = load_exact(tmp_path / "half.zip", envs[1])
    continue_learning(loaded, 56)
    assert all(one.equal(other) for one, other in zip(parameters(model), parameters(loaded), strict=True))
    for env in envs:
        env.close()


def test_without_it_the_environment_is_refused(tmp_path: Path) -> None:
    model = model_in(DummyVecEnv([lambda: Monitor(Drifting())]))
    with pytest.raises(CheckpointError, match="environment 0: "):
        save_exact(model, tmp_path / "half")


def test_an_environment_that_pickles_its_arguments_is_refused() -> None:
    with pytest.raises(SettingError, match="a pickle of Rebuilt holds the arguments of its constructor"):
        PickledEnv(gym.wrappers.TimeLimit(Rebuilt(), 9))


def test_what_cannot_be_pickled_is_named(tmp_path: Path) -> None:
    model = model_in(DummyVecEnv([lambda: ResumableEnv(PickledEnv(Unpicklable()))])).learn(7)
    with pytest.raises(CheckpointError, match="Unpicklable cannot be pickled: "):
        save_exact(model, tmp_path / "half")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("pickled", "reason"),
    [
        (b"nonsense", "state\\['pickle'\\] cannot be used"),
        (b"\x80\x04N.", r"is of .*NoneType.*, and this environment is .*TimeLimit.*Drifting"),
        (None, "tensor of torch.uint8"),
    ],
)
def test_another_pickle_is_refused_and_changes_nothing(pickled: bytes | None, reason: str) -> None:
    env = PickledEnv(gym.wrappers.TimeLimit(Drifting(), 9))
    before, _ = env.reset(seed=0)
    content = None if pickled is None else torch.tensor(list(pickled), dtype=torch.uint8)
    with pytest.raises(StateError, match=reason):
        env.set_state({"pickle": content})
    assert np.array_equal(env.unwrapped.observation(), before)  # type: ignore[attr-defined]


def test_it_has_what_the_environment_has() -> None:
    env = PickledEnv(gym.wrappers.TimeLimit(Drifting(), 9))
    env.reset(seed=0)
    assert env.get_wrapper_attr("action_masks")().tolist() == [True, False]


class Sampling(Drifting):
    """Draws from its space of actions, which is that of the model too."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = gym.spaces.Discrete(2)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.seen[-1] += float(self.action_space.sample())
        return super().step(action)


def test_an_environment_that_draws_from_its_space_of_actions_continues_exactly(tmp_path: Path) -> None:
    def built() -> DQN:
        env = DummyVecEnv([lambda: ResumableEnv(PickledEnv(Sampling()))])
        net = {"net_arch": [4]}
        return DQN("MlpPolicy", env, learning_starts=20, batch_size=4, buffer_size=99, policy_kwargs=net, seed=1)

    model, other = built().learn(30), built()
    save_exact(model, tmp_path / "half")
    continue_learning(model, 80)
    loaded = load_exact(tmp_path / "half.zip", other.get_env())  # type: ignore[arg-type]
    continue_learning(loaded, 80)
    assert all(one.equal(other) for one, other in zip(parameters(model), parameters(loaded), strict=True))


def test_a_restored_environment_draws_from_the_space_that_the_model_has() -> None:
    env = PickledEnv(Sampling())
    env.reset(seed=0)
    space, state = env.action_space, env.get_state()
    rewards = []
    for seed in (3, 3, 4):
        env.set_state(state)
        space.seed(seed)
        rewards.append([env.step(0)[1] for _ in range(9)])
    assert rewards[0] == rewards[1] != rewards[2]


def test_environments_that_draw_from_their_spaces_go_on_with_the_same_numbers(tmp_path: Path) -> None:
    def envs() -> VecEnv:
        make = partial(InvalidActionEnvDiscrete, dim=8, n_invalid_actions=3)
        return DummyVecEnv([lambda: ResumableEnv(PickledEnv(make()))] * 2)

    model = MaskablePPO("MlpPolicy", envs(), n_steps=16, batch_size=16, n_epochs=1, seed=3).learn(32)
    save_exact(model, tmp_path / "saved.zip")
    expected = finished(continue_learning(model, total_timesteps=96))

    loaded = load_exact(tmp_path / "saved.zip", envs())
    assert differences(expected, finished(continue_learning(loaded, total_timesteps=96))) == []
