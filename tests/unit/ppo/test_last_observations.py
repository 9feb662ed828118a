"""An observation that is no number is named where it comes from, and leaves no trace in what was learnt."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv

from rlcore import NonFiniteObservationError, ResumableEnv
from tests.support.training import differing, make_model, normalized


class Breakable(gym.Wrapper[Any, Any, Any, Any]):
    """Returns ``value`` in one place of its observations, unless that is None."""

    value: float | None = None

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(**options)
        return self._broken(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, *others = self.env.step(action)
        return self._broken(observation), *others

    def _broken(self, observation: Any) -> Any:
        if self.value is not None:
            observation = observation.copy()
            observation[2] = self.value
        return observation

    def get_state(self) -> dict[str, Any]:
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        assert state == {}


def breakable(*, normalize: bool) -> tuple[VecEnv, list[Breakable]]:
    made: list[Breakable] = []

    def wrapped(env: gym.Env[Any, Any]) -> ResumableEnv:
        made.append(Breakable(env))
        return ResumableEnv(made[-1])

    envs = make_vec_env("CartPole-v1", n_envs=3, seed=0, wrapper_class=wrapped)
    return (normalized(envs) if normalize else envs), made


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # VecNormalize subtracts infinity from itself
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_the_environment_is_named_and_what_was_learnt_stays(value: float, normalize: bool) -> None:
    envs, made = breakable(normalize=normalize)
    model = make_model(envs)
    model.learn(48)
    before = model.get_parameters()
    made[1].value = value
    with pytest.raises(NonFiniteObservationError, match=r"observation of environment 1 holds .*step\(\)") as caught:
        model.learn(96, reset_num_timesteps=False)
    assert caught.value.environments == (1,)
    assert differing(before, model.get_parameters()) == []
    steps = model.num_timesteps
    with pytest.raises(NonFiniteObservationError, match="environment 1 holds"):
        model.learn(96, reset_num_timesteps=False)
    assert model.num_timesteps == steps, "it begins with a reset"
    assert differing(before, model.get_parameters()) == []
    made[1].value = None
    model.learn(48, reset_num_timesteps=False)
    assert differing(before, model.get_parameters()) != []
