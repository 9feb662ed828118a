"""Vectorised environments continue bit-exactly: in this process, in workers and in a fresh process."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    SubprocVecEnv,
    VecCheckNan,
    VecEnv,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
)

from rlcore.envs import ResumableEnv
from rlcore.envs.vec_state import (
    capture_env_state,
    capture_normalizer,
    restore_env_state,
    restore_normalizer,
    unsupported_reason,
)
from rlcore.errors import StateError
from tests.support.environments import (
    Custom,
    Silent,
    actions_for,
    bits,
    bits_of_state,
    edit,
    make,
    make_vec,
    run_vec,
    through_file,
)
from tests.support.space_cases import Echo


def make_full(env_id: str = "CartPole-v1", seed: int | None = 5) -> VecNormalize:
    with pytest.warns(UserWarning, match="already wrapped with a `Monitor`"):
        monitored = VecMonitor(make_vec(env_id, seed=seed))
    return VecNormalize(VecCheckNan(monitored))


def test_a_fresh_vectorised_environment_continues_bit_exactly_through_its_wrappers() -> None:
    env, fresh = make_full(), make_full(seed=None)
    actions = actions_for(env.action_space, 150)
    env.reset()
    run_vec(env, actions[:33])
    state, statistics = through_file(capture_env_state(env)), through_file(capture_normalizer(env))
    expected = [*run_vec(env, actions[33:]), bits(env.reset())]

    restore_env_state(fresh, state)
    restore_normalizer(fresh, statistics)

    assert [*run_vec(fresh, actions[33:]), bits(fresh.reset())] == expected


def test_every_accumulator_of_the_wrappers_is_part_of_the_state_which_is_a_copy() -> None:
    env, fresh = make_full(), make_full()
    env.reset()
    run_vec(env, [1] * 23)
    state: Any = capture_env_state(env)
    before = bits_of_state(state)
    own = {name: value for layer in state["wrappers"] for name, value in layer["state"].items()}
    assert set(own) == {"returns", "episode_returns", "episode_lengths", "episode_count"}
    assert all(np.any(np.asarray(value) != 0) for value in own.values())

    restore_env_state(fresh, state)

    assert bits_of_state(capture_env_state(fresh)) == before
    run_vec(env, [1] * 2)
    run_vec(fresh, [1] * 2)
    assert bits_of_state(state) == before


def test_seeds_that_wait_for_a_reset_are_restored_and_used_ones_do_not_come_back() -> None:
    waiting, used = make_vec(seed=5), make_vec(seed=5)
    state = through_file(capture_env_state(waiting))
    first = used.reset()
    second = used.reset()
    state_used = through_file(capture_env_state(used))
    third = used.reset()

    fresh = make_vec(seed=77)
    restore_env_state(fresh, state)
    assert bits(fresh.reset()) == bits(first)
    restore_env_state(fresh := make_vec(seed=5), state_used)
    assert bits(fresh.reset()) == bits(third)
    assert bits(third) != bits(second)


def test_worker_processes_continue_bit_exactly_and_survive_a_refused_state() -> None:
    local = make_vec("Acrobot-v1")
    actions = actions_for(local.action_space, 40)
    local.reset()
    run_vec(local, actions[:20])
    state = through_file(capture_env_state(local))
    workers = make_vec(
        "Acrobot-v1", seed=None, vec_env_cls=SubprocVecEnv, vec_env_kwargs={"start_method": "forkserver"}
    )
    try:
        with pytest.raises(StateError, match=r"environment 1: .*'PendulumEnv'"):
            restore_env_state(workers, edit(state, ["environments", 1, "environment"], "PendulumEnv"))
        restore_env_state(workers, state)
        again = capture_env_state(workers)
        seen = [workers.step(np.stack([action] * 2)) for action in actions[20:]]
    finally:
        workers.close()

    assert bits_of_state(again) == bits_of_state(state)
    expected = [local.step(np.stack([action] * 2)) for action in actions[20:]]
    assert bits([each[0] for each in seen]) == bits([each[0] for each in expected])


class Foreign(VecEnv):
    """Another implementation of VecEnv."""

    def __init__(self) -> None:
        super().__init__(1, CartPoleEnv().observation_space, CartPoleEnv().action_space)

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:  # noqa: ARG002
        return [None]

    close = reset = step_async = step_wait = set_attr = env_method = env_is_wrapped = None


OUTERMOST = "environment 0: ResumableEnv is not its outermost wrapper.*wrapper_class=ResumableEnv"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: make_vec_env("CartPole-v1", 1), OUTERMOST),
        (lambda: DummyVecEnv([CartPoleEnv]), OUTERMOST),
        (lambda: DummyVecEnv([lambda: Silent(make("CartPole-v1"))]), OUTERMOST),
        (lambda: DummyVecEnv([Custom]), OUTERMOST),
        (
            lambda: DummyVecEnv([lambda: make("CartPole-v1"), lambda: Monitor(ResumableEnv(Custom()))]),
            OUTERMOST.replace("0", "1"),
        ),
        (lambda: VecFrameStack(make_vec(), 2), "VecFrameStack cannot give its state; implement get_state"),
        (lambda: VecNormalize(Foreign()), "Foreign cannot give the state .*use DummyVecEnv or SubprocVecEnv"),
    ],
    ids=["gym.make", "no wrapper", "outside", "bare", "Monitor outside", "frame stack", "vec env"],
)
def test_what_cannot_give_its_state_is_named(build: Callable[[], VecEnv], message: str) -> None:
    env = build()
    assert re.search(message, unsupported_reason(env) or "")
    assert capture_env_state(env) is None
    with pytest.raises(StateError, match="cannot be restored into this environment"):
        restore_env_state(env, through_file(capture_env_state(make_vec())))


VEC_BAD: list[tuple[list[str | int], Any, str]] = [
    (["environments"], [], "of 0 environments.*has 2"),
    (["environments", 1], None, "environment 1: .*must be a dict"),
    (["environments", 1, "layers"], [], "environment 1: .*list of 5"),
    (["environments", 1, "arguments"], {"g": 1.62}, "environment 1: .*unknown keys .*'g'"),
    (["seeds"], [1], "list of 2"),
    (["seeds", 0], "x", "'x'"),
    (["seeds", 0], -1, "from 0 to"),
    (["seeds", 0], 2**70, "from 0 to"),
    (["wrappers"], [], "list of 3"),
    (["wrappers", 0, "layer"], "VecFrameStack", "'VecNormalize'.*'VecFrameStack'"),
    (["wrappers", 0, "state", "returns"], torch.zeros(2, dtype=torch.int64), "VecNormalize.*returns.*torch.float64"),
    (["wrappers", 2, "state", "episode_lengths"], torch.zeros(3, dtype=torch.int32), r"episode_lengths.*\(2,\)"),
]


@pytest.mark.parametrize(("path", "value", "message"), VEC_BAD, ids=lambda value: repr(value)[:40])
def test_a_vec_state_that_does_not_fit_is_refused(path: list[str | int], value: Any, message: str) -> None:
    env = make_full()
    env.reset()
    run_vec(env, [1] * 5)
    with pytest.raises(StateError, match=message):
        restore_env_state(make_full(), edit(capture_env_state(env), path, value))


def test_a_state_fits_an_environment_made_with_the_same_arguments_however_it_is_shown() -> None:
    earth, moon = make_vec("Pendulum-v1", env_kwargs={"g": 9.8}), make_vec("Pendulum-v1", env_kwargs={"g": 1.62})
    shown = make_vec("Pendulum-v1", env_kwargs={"g": 9.8, "render_mode": "rgb_array"})
    earth.reset()
    state = capture_env_state(earth)
    assert state is not None
    with pytest.raises(StateError, match=r"\['arguments'\]\['g'\] .*1\.62.* 9\.8"):
        restore_env_state(moon, state)
    restore_env_state(shown, state)
    assert bits_of_state(capture_env_state(shown)) == bits_of_state(state)


# -- the statistics of VecNormalize -------------------------------------------------------------------------------


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
