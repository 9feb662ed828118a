"""The statistics of VecNormalize are put back whole, and refused where they do not fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from rlcore.envs.vec_state import capture_normalizer, restore_normalizer
from rlcore.errors import StateError
from tests.support.environments import bits, bits_of_state, edit, make_vec, run_vec, through_file
from tests.support.space_cases import Echo

NAMED = spaces.Dict({"a": spaces.Box(-9, 9, (2,)), "b": spaces.Box(-9, 9, (3, 2))})


def named() -> VecNormalize:
    return VecNormalize(DummyVecEnv([lambda: Echo(NAMED, spaces.Discrete(2))] * 2))


def statistics_of(env: VecNormalize) -> Any:
    observation: Any = env.obs_rms if isinstance(env.obs_rms, dict) else {"": env.obs_rms}
    return [
        bits([np.asarray(rms.mean), np.asarray(rms.var), float(rms.count)])
        for rms in [*observation.values(), env.ret_rms]
    ]


def stacked() -> VecNormalize:
    return VecNormalize(VecNormalize(make_vec(), norm_reward=False), norm_obs=False)


@pytest.mark.parametrize("build", [named, lambda: VecNormalize(make_vec()), stacked])
def test_statistics_come_back_exactly_and_do_not_follow_the_environment(build: Callable[[], VecNormalize]) -> None:
    env, fresh = build(), build()
    env.seed(1)
    env.reset()
    run_vec(env, [0, 1, 1, 0])
    state = capture_normalizer(env)
    taken, held = bits_of_state(state), statistics_of(env)

    restore_normalizer(fresh, through_file(state))

    assert statistics_of(fresh) == held
    run_vec(env, [0, 1])
    assert bits_of_state(state) == taken == bits_of_state(capture_normalizer(fresh))


def test_an_environment_without_a_normalizer_has_no_statistics() -> None:
    assert capture_normalizer(make_vec()) is None
    with pytest.raises(StateError, match="no VecNormalize wrapper"):
        restore_normalizer(make_vec(), through_file(capture_normalizer(VecNormalize(make_vec()))))


NORMALIZER_BAD: list[tuple[list[str | int], Any, str]] = [
    (["layers"], [], "list of 1"),
    (["layers", 0], None, "must be a dict"),
    (["layers", 0, "observation"], [], "list of 2"),
    (["layers", 0, "observation", 0, "key"], "x", "key"),
    (["layers", 0, "observation", 0, "mean"], torch.zeros(3, dtype=torch.float64), r"shape \(2,\)"),
    (["layers", 0, "observation", 0, "var"], torch.zeros(2, dtype=torch.int64), "torch.float64"),
    (["layers", 0, "return", "count"], 0.0, "count.*a finite number"),
    (["layers", 0, "return", "count"], "1", "count.*a finite number"),
    (["layers", 0, "return", "count"], float("inf"), "count.*a finite number"),
    (["layers", 0, "return", "var"], torch.tensor(-1.0, dtype=torch.float64), "a number below 0"),
    (["layers", 0, "observation", 0, "mean"], torch.full((2,), float("nan"), dtype=torch.float64), "mean.* holds NaN"),
    (["layers", 0, "return", "more"], 1, "more"),
]


@pytest.mark.parametrize(("path", "value", "message"), NORMALIZER_BAD, ids=lambda value: repr(value)[:40])
def test_statistics_that_do_not_fit_change_nothing(path: list[str | int], value: Any, message: str) -> None:
    env, other = (named() for _ in range(2))
    env.reset()
    other.reset()
    before = bits_of_state(capture_normalizer(env))
    state = capture_normalizer(other)
    assert state is not None

    with pytest.raises(StateError, match=message):
        restore_normalizer(env, edit(state, path, value))

    assert bits_of_state(capture_normalizer(env)) == before
