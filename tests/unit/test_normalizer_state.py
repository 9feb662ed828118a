"""The running statistics of VecNormalize come back exactly, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize

from rlcore.envs.vec_state import capture_normalizer, restore_normalizer
from rlcore.errors import StateError
from tests.support.environments import bits, bits_of_state, edit, make_vec, run_vec, through_file


class Pictures(gym.Env[Any, Any]):
    observation_space = spaces.Dict({"a": spaces.Box(-9, 9, (2,)), "b": spaces.Box(-9, 9, (3, 2))})
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._observation(), float(self.np_random.normal()) + float(action), False, False, {}

    def _observation(self) -> dict[str, Any]:
        return {
            key: self.np_random.normal(size=space.shape).astype(np.float32)
            for key, space in self.observation_space.items()
        }


def statistics_of(env: VecNormalize) -> Any:
    observation: Any = env.obs_rms if isinstance(env.obs_rms, dict) else {"": env.obs_rms}
    return [
        bits([np.asarray(rms.mean), np.asarray(rms.var), float(rms.count)])
        for rms in [*observation.values(), env.ret_rms]
    ]


@pytest.mark.parametrize("build", [lambda: DummyVecEnv([Pictures] * 2), make_vec], ids=["dict", "box"])
def test_the_normalizer_comes_back_exactly(build: Callable[[], VecEnv]) -> None:
    env, fresh = VecNormalize(build()), VecNormalize(build())
    env.seed(1)
    env.reset()
    run_vec(env, [0, 1, 1, 0])

    restore_normalizer(fresh, through_file(capture_normalizer(env)))

    assert statistics_of(fresh) == statistics_of(env)


def test_stacked_normalizers_keep_their_statistics_apart() -> None:
    def build() -> VecNormalize:
        return VecNormalize(VecNormalize(make_vec(), norm_reward=False), norm_obs=False)

    env, fresh = build(), build()
    env.reset()
    run_vec(env, [0, 1, 1])
    state = capture_normalizer(env)
    assert state is not None

    restore_normalizer(fresh, through_file(state))

    assert bits_of_state(capture_normalizer(fresh)) == bits_of_state(state)
    assert [len(layer["observation"]) for layer in state["layers"]] == [0, 1]  # type: ignore[index, arg-type, union-attr, call-overload]


def test_statistics_that_were_taken_do_not_follow_the_environment() -> None:
    env = VecNormalize(make_vec())
    env.reset()
    state = capture_normalizer(env)
    before = bits_of_state(state)

    run_vec(env, [0, 1, 1])

    assert bits_of_state(state) == before


def test_an_environment_without_a_normalizer_has_no_statistics() -> None:
    assert capture_normalizer(make_vec()) is None
    with pytest.raises(StateError, match="no VecNormalize wrapper"):
        restore_normalizer(make_vec(), through_file(capture_normalizer(VecNormalize(make_vec()))))


NORMALIZER_BAD: list[tuple[list[str | int], Any, str]] = [
    (["layers"], [], "list of 1"),
    (["layers", 0], None, "must be a dict"),
    (["layers", 0, "observation"], [], "list of 1"),
    (["layers", 0, "observation", 0, "key"], "a", "key"),
    (["layers", 0, "observation", 0, "mean"], torch.zeros(3, dtype=torch.float64), r"shape \(4,\)"),
    (["layers", 0, "observation", 0, "var"], torch.zeros(4), "torch.float64"),
    (["layers", 0, "return", "count"], 0.0, "positive float"),
    (["layers", 0, "return", "count"], "1", "positive float"),
    (["layers", 0, "return", "count"], float("inf"), "positive float"),
    (["layers", 0, "return", "var"], torch.tensor(-1.0, dtype=torch.float64), "a number below 0"),
    (["layers", 0, "observation", 0, "mean"], torch.full((4,), float("nan"), dtype=torch.float64), "mean holds NaN"),
    (["layers", 0, "return", "more"], 1, "more"),
]


@pytest.mark.parametrize(("path", "value", "message"), NORMALIZER_BAD, ids=lambda value: repr(value)[:40])
def test_statistics_that_do_not_fit_change_nothing(path: list[str | int], value: Any, message: str) -> None:
    env, other = VecNormalize(make_vec()), VecNormalize(make_vec(seed=6))
    env.reset()
    other.reset()
    before = bits_of_state(capture_normalizer(env))
    state = capture_normalizer(other)
    assert state is not None

    with pytest.raises(StateError, match=message):
        restore_normalizer(env, edit(state, path, value))

    assert bits_of_state(capture_normalizer(env)) == before
