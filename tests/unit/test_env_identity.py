"""Which environment a state belongs to, and whether an environment is covered, is asked of the environment itself."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from stable_baselines3.common.vec_env import DummyVecEnv

from rlcore.envs.vec_state import capture_env_state, restore_env_state, unsupported_reason
from rlcore.envs import ResumableEnv
from rlcore.errors import StateError
from tests.support.environments import bits_of_state, make_vec


class Titled(gym.Wrapper[Any, Any, Any, Any]):
    """Keeps nothing, and calls itself what it likes."""

    title = "my environment"

    def __str__(self) -> str:
        return self.title

    def get_state(self) -> dict[str, Any]:
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        assert state == {}


class Impostor(gym.Wrapper[Any, Any, Any, Any]):
    """Bears the name of what it is not."""

    def __str__(self) -> str:
        return "<ResumableEnv<CartPole>>"


def test_an_environment_may_call_itself_what_it_likes() -> None:
    env = DummyVecEnv([lambda: ResumableEnv(Titled(gym.make("CartPole-v1")))])
    assert unsupported_reason(env) is None


def test_a_name_does_not_make_an_environment_resumable() -> None:
    env = DummyVecEnv([lambda: Impostor(CartPoleEnv())])
    assert unsupported_reason(env) is not None


def test_a_state_fits_only_an_environment_made_with_the_same_arguments() -> None:
    earth, moon = make_vec("Pendulum-v1"), make_vec("Pendulum-v1", env_kwargs={"g": 1.62})
    earth.reset()
    state = capture_env_state(earth)
    assert state is not None
    with pytest.raises(StateError, match=r"arguments .*'g': 1\.62"):
        restore_env_state(moon, state)


def test_how_an_environment_is_shown_does_not_matter() -> None:
    hidden, shown = (
        DummyVecEnv([lambda mode=mode: ResumableEnv(gym.make("CartPole-v1", render_mode=mode))])  # type: ignore[misc]
        for mode in (None, "rgb_array")
    )
    hidden.reset()
    state = capture_env_state(hidden)
    assert state is not None
    restore_env_state(shown, state)
    assert bits_of_state(capture_env_state(shown)) == bits_of_state(state)
