"""Runs with unusual settings, spaces and infos: every file that is written can be loaded, and continues exactly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import Figure, HumanOutputFormat
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import VecEnv, VecMonitor

from rlcore import ResumableEnv
from rlcore.checkpoint.container import load_container, save_container
from rlcore.resume import PickledEnv, SaveExactly, continue_learning, load_exact, save_exact
from rlcore.resume.callback import path_of_step, saved_steps
from tests.core.resume.small_models import Stateless, net, ppo, sac
from tests.support.environments import make_vec
from tests.support.exact_runs import RecordRows, differences, finished
from tests.support.training import make_model


class Mask(FlattenExtractor):
    """Has a buffer with infinities, as masks of attention have."""

    def __init__(self, space: Any) -> None:
        super().__init__(space)
        self.register_buffer("mask", torch.triu(torch.full((4, 4), -torch.inf), 1))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return observations + torch.softmax(self.mask, -1).sum(0)  # type: ignore[arg-type]


class OwnBox(spaces.Box):
    """A space of the user."""


class Boxed(Stateless, gym.ObservationWrapper[Any, Any, Any]):
    """Has a space of the user."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.observation_space = OwnBox(-np.inf, np.inf, (4,))

    def observation(self, observation: Any) -> Any:
        return observation


class Reporting(Stateless, gym.Wrapper[Any, Any, Any, Any]):
    """Reports the success of an episode, and gives rewards that are no whole numbers."""

    def __init__(self, env: gym.Env[Any, Any], success: object) -> None:
        super().__init__(env)
        self.success = success

    def step(self, action: Any) -> Any:
        observation, reward, *ended, info = self.env.step(action)
        return observation, float(reward) / 3, *ended, {**info, "is_success": self.success}


class Drawing(gym.ActionWrapper[Any, Any, Any]):
    """Draws some actions from a space of its own."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.action_space = spaces.Box(-1, 1, (1,))

    def action(self, action: Any) -> Any:
        return 2 * (self.action_space.sample() if self.unwrapped.np_random.random() < 0.3 else action)


class Scaled(PPO):
    """Takes a number by whose dtype NumPy rounds."""

    def __init__(self, *arguments: Any, coefficient: Any = 0.1, **settings: Any) -> None:
        self.coefficient = coefficient
        super().__init__(*arguments, **settings)

    def train(self) -> None:
        self.rollout_buffer.advantages = self.rollout_buffer.advantages * self.coefficient * 0.37
        super().train()


def wrapped(wrapper: Callable[[Any], Any], env_id: str = "CartPole-v1", n_envs: int = 2) -> Callable[[], VecEnv]:
    return lambda: make_vec_env(env_id, n_envs, seed=5, wrapper_class=lambda env: ResumableEnv(wrapper(env)))


def dqn(env: VecEnv) -> DQN:
    numbers = {name: np.float32(0.7) for name in ("exploration_initial_eps", "exploration_fraction")}
    return DQN("MlpPolicy", env, **net(), buffer_size=40, learning_starts=4, batch_size=4, **numbers)  # type: ignore[arg-type]


def reporting(success: object) -> Callable[[], VecEnv]:
    return wrapped(lambda env: Reporting(env, success))


EXTRACTOR = {"policy_kwargs.features_extractor_class": Mask}
FALLING = LinearSchedule(np.float32(1e-3), np.float32(1e-5), np.float32(0.9))
UNUSUAL: dict[str, tuple[Callable[[], VecEnv], Callable[[Any], Any], dict[str, Any]]] = {
    "gradients without a bound": (make_vec, lambda env: ppo(env, max_grad_norm=np.inf), {}),
    "A2C without a bound": (make_vec, lambda env: A2C("MlpPolicy", env, **net(), max_grad_norm=np.inf), {}),
    "a mask": (
        make_vec,
        lambda env: ppo(env, policy_kwargs={"net_arch": [4], "features_extractor_class": Mask}),
        {"custom_objects": EXTRACTOR},
    ),
    "a space of the user": (
        wrapped(Boxed),
        ppo,
        {"custom_objects": {"observation_space": OwnBox(-np.inf, np.inf, (4,))}},
    ),
    "a schedule of NumPy": (make_vec, lambda env: ppo(env, learning_rate=FALLING), {}),
    "an argument of NumPy": (
        make_vec,
        lambda env: Scaled("MlpPolicy", env, **net(), n_steps=8, batch_size=4, coefficient=np.float64(0.1)),
        {"algorithm": Scaled},
    ),
    "exploration of NumPy": (make_vec, dqn, {}),
    "success as a tensor": (reporting(torch.tensor(True)), ppo, {}),
    "success of NumPy": (reporting(np.float32(0.3)), ppo, {}),
    "success as an array": (reporting(np.array([0.3, 1.0], np.float32)), ppo, {}),
    "returns of VecMonitor": (lambda: VecMonitor(reporting(True)()), ppo, {}),
    "a wrapper that draws": (wrapped(lambda env: PickledEnv(Drawing(env)), "Pendulum-v1", 1), sac, {}),
}


@pytest.mark.filterwarnings("ignore:The environment is already wrapped:UserWarning")
@pytest.mark.parametrize(("envs", "make", "given"), UNUSUAL.values(), ids=UNUSUAL)
def test_every_file_of_an_unusual_run_continues_exactly(envs: Any, make: Any, given: Any, tmp_path: Path) -> None:
    model, record = make(envs()), RecordRows()
    model.learn(64, callback=[SaveExactly(tmp_path, every=16, keep=9), record], log_interval=1)
    expected, rows = finished(model), record.writer.rows
    *steps, _ = saved_steps(tmp_path, "exact")

    for step in steps:
        record = RecordRows()
        loaded = load_exact(path_of_step(tmp_path, "exact", step), envs(), **given)
        continue_learning(loaded, record, log_interval=1)
        assert (step, differences(finished(loaded), expected)) == (step, [])
        assert record.writer.rows == rows[len(rows) - len(record.writer.rows) :]
    assert steps


def test_a_mask_of_a_distributional_ppo_is_loaded(tmp_path: Path) -> None:
    model = make_model(make_vec(), policy_kwargs={"features_extractor_class": Mask})
    save_exact(model, tmp_path / "masked.zip")
    loaded: Any = load_exact(tmp_path / "masked.zip", make_vec(), custom_objects=EXTRACTOR)
    assert torch.equal(loaded.policy.features_extractor.mask, Mask(make_vec().observation_space).mask)


@pytest.mark.parametrize("value", [Figure(None, False), torch.tensor(1.5), np.array(1.5), np.int32(3), "text", None])
def test_a_row_of_the_log_that_was_begun_is_written_after_a_load(value: Any, tmp_path: Path) -> None:
    model = ppo(verbose=0).learn(16)
    model.logger.record("own/value", value, exclude="tensorboard")
    model.logger.record("own/number", 1.0)
    save_exact(model, tmp_path / "begun.zip")

    logger = load_exact(tmp_path / "begun.zip", make_vec()).logger
    logger.output_formats.append(HumanOutputFormat(str(tmp_path / "log.txt")))
    logger.dump()
    logger.close()

    assert "number" in (tmp_path / "log.txt").read_text()


def test_names_of_a_log_that_no_logger_takes_are_left_out(saved: Path, tmp_path: Path) -> None:
    content: Any = load_container(saved)
    content["state"]["log"]["values"].update({5: 1.0, "alone": 1.0, "listed": [1.0]})
    content["state"]["log"]["excluded"].update({5: [], "listed": [], "other": []})
    save_container(tmp_path / "changed.zip", content)

    logger = load_exact(tmp_path / "changed.zip", make_vec()).logger

    assert logger.name_to_value.keys() == logger.name_to_excluded.keys()
    assert not {5, "alone", "listed", "other"} & logger.name_to_value.keys()
