"""Layers around an environment: who keeps what, and in which order an image lies in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.envs import FakeImageEnv
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecEnvWrapper, VecNormalize

from rlcore import DistributionalPPO, ResumableEnv
from rlcore.errors import CheckpointError, SettingError
from rlcore.resume import PickledEnv, load_exact, save_exact
from tests.core.resume.small_models import ppo
from tests.support.environments import make_vec
from tests.support.training import make_model


class Stateless(VecEnvWrapper):
    """Says that it keeps nothing."""

    def reset(self) -> Any:
        return self.venv.reset()

    def step_wait(self) -> Any:
        return self.venv.step_wait()

    def get_state(self) -> Any:
        return {}

    def set_state(self, state: Any) -> None:
        assert state == {}


class Forwards(VecEnvWrapper):
    """Gives the state of what it wraps, as every VecEnvWrapper forwards what it lacks."""

    reset, step_wait = Stateless.reset, Stateless.step_wait


class Inherits(ResumableEnv):
    """Gives the state of what it wraps, as its class does."""


def test_a_layer_that_passes_on_the_state_of_another_does_not_answer_for_itself(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="Forwards cannot give its state"):
        save_exact(ppo(Forwards(Stateless(make_vec()))), tmp_path / "file.zip")
    with pytest.raises(SettingError, match="does not know what the wrapper Inherits keeps"):
        ResumableEnv(Inherits(gym.make("CartPole-v1")))
    save_exact(ppo(Stateless(make_vec())), tmp_path / "file.zip")


def test_what_a_callback_changed_of_a_normalizer_is_as_it_was(tmp_path: Path) -> None:
    changes = {"gamma": 0.5, "clip_reward": 2.0, "epsilon": 1e-3, "training": False}
    env = VecNormalize(make_vec())
    model = ppo(env).learn(16)
    for name, value in changes.items():
        setattr(env, name, value)
    save_exact(model, tmp_path / "file.zip")
    found = load_exact(tmp_path / "file.zip", VecNormalize(make_vec())).env
    assert {name: getattr(found, name) for name in changes} == changes


SET: dict[str, Any] = {
    "clip_obs": np.float64(2.0),
    "clip_reward": np.float32(0.1),
    "gamma": np.float32(0.9),
    "epsilon": 0.0,
    "training": 0,
    "norm_obs": np.bool_(False),
}


@pytest.mark.parametrize("make", [ppo, make_model], ids=["PPO", "DistributionalPPO"])
@pytest.mark.parametrize(("name", "value"), [*SET.items(), ("clip_obs", 0), ("clip_obs", np.inf)])
def test_a_normalizer_whose_settings_are_numbers_of_any_kind_is_as_it_was(
    make: Any, name: str, value: Any, tmp_path: Path
) -> None:
    env = VecNormalize(make_vec())
    setattr(env, name, value)
    model = make(env).learn(16)
    save_exact(model, tmp_path / "file.zip")
    expected = model.learn(16, reset_num_timesteps=False).policy.state_dict()
    loaded = load_exact(tmp_path / "file.zip", VecNormalize(make_vec(), clip_obs=3))
    found = loaded.learn(16, reset_num_timesteps=False).policy.state_dict()  # where ours puts it back
    assert getattr(loaded.env, name) == value
    assert all(each.equal(found[key]) for key, each in expected.items())


def images() -> VecEnv:
    return DummyVecEnv([lambda: ResumableEnv(PickledEnv(FakeImageEnv(n_channels=3, discrete=True)))] * 2)


@pytest.mark.parametrize(("algorithm", "policy"), [(PPO, "CnnPolicy"), (DistributionalPPO, "CnnLstmPolicy")])
def test_images_lie_in_memory_as_they_did(algorithm: Any, policy: str, tmp_path: Path) -> None:
    model = algorithm(policy, images(), n_steps=4, batch_size=8, n_epochs=1, device="cpu", seed=0)
    model.learn(8)
    save_exact(model, tmp_path / "file.zip")
    model.learn(8, reset_num_timesteps=False)
    loaded: Any = load_exact(tmp_path / "file.zip", images())
    loaded.learn(8, reset_num_timesteps=False)
    assert loaded._last_obs.strides == model._last_obs.strides
    assert loaded.policy.state_dict()["action_net.weight"].equal(model.policy.state_dict()["action_net.weight"])
