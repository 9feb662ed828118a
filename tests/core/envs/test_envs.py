"""One environment continues bit-exactly from a saved state, and refuses what does not fit."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
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

from rlcore.envs.resumable import SETTINGS_OF_NORMALIZER, ResumableEnv, SupportsState
from rlcore.envs.vec_state import (
    capture_env_state,
    capture_normalizer,
    restore_env_state,
    restore_normalizer,
    unsupported_reason,
)
from rlcore.errors import SettingError, StateError
from tests.support.environments import (
    Custom,
    Halving,
    Silent,
    TunedCartPole,
    actions_for,
    bits,
    bits_of_state,
    edit,
    make,
    make_vec,
    run,
    run_vec,
    snapshot,
    through_file,
)

IDS = ["CartPole-v1", "Pendulum-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Acrobot-v1"]


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("steps", [0, 1, 37])
@pytest.mark.parametrize("used", [False, True])
def test_an_environment_continues_bit_exactly(env_id: str, steps: int, used: bool) -> None:
    env, other = make(env_id), make(env_id)
    actions = actions_for(env.action_space, steps + 500)
    env.reset(seed=3)
    run(env, actions[:steps])
    state = through_file(env.get_state())
    before = bits_of_state(state)
    expected = run(env, actions[steps:])
    assert env_id == "MountainCarContinuous-v0" or len(expected) > 500, "an episode ends on the way"
    assert bits_of_state(state) == before
    if used:
        other.reset(seed=99)
        run(other, actions[:60])

    for _ in range(2):
        other.set_state(state)
        assert run(other, actions[steps:]) == expected


def test_a_state_taken_after_an_episode_end_asks_for_a_reset() -> None:
    env = make("CartPole-v1")
    env.reset(seed=3)
    while not env.step(1)[2]:
        pass

    fresh = make("CartPole-v1")
    fresh.set_state(env.get_state())

    assert fresh.unwrapped.steps_beyond_terminated == 0  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="needs reset"):
        fresh.step(1)
    assert bits(fresh.reset()) == bits(env.reset())


def test_a_generator_of_the_users_continues() -> None:
    env, fresh = make("CartPole-v1"), make("CartPole-v1")
    env.reset(seed=1)
    env.unwrapped.np_random = np.random.Generator(np.random.PCG64(5))
    env.unwrapped.np_random.random(3, dtype=np.float32)

    fresh.set_state(through_file(env.get_state()))

    assert fresh.unwrapped.np_random.random(9).tolist() == env.unwrapped.np_random.random(9).tolist()
    assert fresh.unwrapped.np_random_seed == -1


def test_wrappers_and_environments_that_answer_for_themselves_are_asked() -> None:
    env, fresh = ResumableEnv(Halving(Custom())), ResumableEnv(Halving(Custom()))
    env.reset(seed=1)
    run(env, [0, 1, 1])
    fresh.set_state(through_file(env.get_state()))
    assert isinstance(env, SupportsState)
    assert run(fresh, [1, 0, 1]) == run(env, [1, 0, 1])


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda: Silent(gym.make("CartPole-v1")), "wrapper Silent"),
        (lambda: gym.wrappers.NormalizeReward(gym.make("CartPole-v1")), "wrapper NormalizeReward"),
        (TunedCartPole, "environment TunedCartPole"),
    ],
)
def test_an_unknown_layer_is_refused_by_name(build: Callable[[], gym.Env[Any, Any]], name: str) -> None:
    with pytest.raises(SettingError, match=f"{name} keeps.*implement get_state"):
        ResumableEnv(build())


# layers: 0 Monitor, 1 TimeLimit, 2 OrderEnforcing, 3 PassiveEnvChecker, 4 CartPole
BAD: list[tuple[list[str | int], Any, str]] = [
    (["environment"], "PendulumEnv", "'CartPoleEnv'.*'PendulumEnv'"),
    (["id"], "CartPole-v0", r"CartPole-v0.*CartPole-v1"),
    (["layers"], [], r"the run had '\(CartPole-v1\)', and this is Monitor of TimeLimit"),
    (["layers"], None, "a list of 5 entries"),
    (["layers", 1, "layer"], "TimeLimit(200)", r"TimeLimit\(200\).*TimeLimit\(500\).*as for the run"),
    (["layers", 1, "state"], None, "TimeLimit.* must be a dict"),
    (["layers", 1, "state"], {}, "_elapsed_steps"),
    (["layers", 1, "state", "_elapsed_steps"], -1, "-1"),
    (["layers", 1, "state", "_elapsed_steps"], True, "True"),
    (["layers", 0, "state", "rewards"], torch.zeros(2, 2), "rewards"),
    (["layers", 0, "state", "needs_reset"], 1, "True or False"),
    (["layers", 0, "state", "unknown"], 1, "unknown"),
    (["layers", 3, "state", "_previous_data"], 1, "None"),
    (["layers", 4, "state", "state"], torch.zeros(3, dtype=torch.float64), r"shape \(4,\)"),
    (["layers", 4, "state", "state"], torch.zeros(4, dtype=torch.int64), "torch.int64"),
    (["layers", 4, "state", "state"], [0.0] * 4, "a list of 4 entries"),
    (["layers", 4, "state", "_np_random"], {"bit_generator": "os.system"}, "missing keys"),
    (["layers", 4, "state", "_np_random", "state"], {}, "inc"),
    (["layers", 4, "state", "_np_random", "state", "inc"], 2**128, "inc"),
    (["layers", 4, "state", "_np_random", "uinteger"], "x", "'x'"),
]


@pytest.mark.parametrize(("path", "value", "message"), BAD, ids=lambda value: repr(value)[:40])
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(
    path: list[str | int], value: Any, message: str
) -> None:
    env, other = make("CartPole-v1"), make("CartPole-v1")
    env.reset(seed=1)
    run(env, [0, 1, 0])
    other.reset(seed=2)
    before = snapshot(env)
    with pytest.raises(StateError, match=message):
        env.set_state(edit(other.get_state(), path, value))
    assert snapshot(env) == before


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
    assert set(own) - {*SETTINGS_OF_NORMALIZER} == {"returns", "episode_returns", "episode_lengths", "episode_count"}
    assert all(np.any(np.asarray(value) != 0) for value in own.values())

    restore_env_state(fresh, state)

    assert bits_of_state(capture_env_state(fresh)) == before
    run_vec(env, [1] * 2)
    run_vec(fresh, [1] * 2)
    assert bits_of_state(state) == before


def test_worker_processes_continue_bit_exactly_and_survive_a_refused_state() -> None:
    local = make_vec("Acrobot-v1")
    actions = actions_for(local.action_space, 40)
    local.reset()
    run_vec(local, actions[:20])
    local_state = through_file(capture_env_state(local))
    state = edit(local_state, ["vec_env"], "SubprocVecEnv")
    workers = make_vec("Acrobot-v1", seed=None, vec_env_cls=SubprocVecEnv, vec_env_kwargs={"start_method": "fork"})
    try:
        with pytest.raises(StateError, match=r"environment 1: .*'PendulumEnv'"):
            restore_env_state(workers, edit(state, ["environments", 1, "environment"], "PendulumEnv"))
        with pytest.raises(StateError, match="the run had 'DummyVecEnv', and this is SubprocVecEnv"):
            restore_env_state(workers, local_state)
        restore_env_state(workers, state)
        again = capture_env_state(workers)
        seen = [workers.step(np.stack([action] * 2)) for action in actions[20:]]
    finally:
        workers.close()

    assert bits_of_state(again) == bits_of_state(state)
    expected = [local.step(np.stack([action] * 2)) for action in actions[20:]]
    assert bits([each[0] for each in seen]) == bits([each[0] for each in expected])


def test_seeds_that_wait_for_a_reset_are_restored_and_used_ones_do_not_come_back() -> None:
    env = make_vec("Pendulum-v1", seed=5)
    for others_seed in (77, 5):
        state = through_file(capture_env_state(env))
        restore_env_state(fresh := make_vec("Pendulum-v1", seed=others_seed), state)
        assert bits(fresh.reset()) == bits(env.reset())


class Remembering(VecCheckNan):
    """A VecEnvWrapper that answers for itself."""

    value = 0.0

    def get_state(self) -> dict[str, Any]:
        return {"value": self.value}

    def set_state(self, state: dict[str, Any]) -> None:
        self.value = state["value"]


def test_a_vec_wrapper_that_answers_for_itself_is_asked() -> None:
    env, fresh = Remembering(make_vec()), Remembering(make_vec())
    env.reset()
    env.value = 2.5
    restore_env_state(fresh, through_file(capture_env_state(env)))
    assert fresh.value == 2.5


class OwnStack(VecFrameStack):
    """May keep more than its frames."""


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
        (lambda: OwnStack(make_vec(), 2), "OwnStack cannot give its state; implement get_state"),
        (lambda: VecNormalize(Foreign()), "Foreign cannot give the state .*use DummyVecEnv or SubprocVecEnv"),
    ],
    ids=["gym.make", "no wrapper", "outside", "bare", "Monitor outside", "a subclass", "vec env"],
)
def test_what_cannot_give_its_state_is_named(build: Callable[[], VecEnv], message: str) -> None:
    env = build()
    assert re.search(message, unsupported_reason(env) or "")
    assert capture_env_state(env) is None


VEC_BAD: list[tuple[list[str | int], Any, str]] = [
    (["environments"], [], r"\['environments'\] must be a list of 2 entries"),
    (["environments", 1], None, "environment 1: .*must be a dict"),
    (["environments", 1, "layers"], [], "environment 1: the run had .*as for the run"),
    (["environments", 1, "arguments"], {"g": 1.62}, r"environment 1: .*CartPole-v1, g=1.62\).*CartPole-v1\)"),
    (["seeds"], [1], "list of 2"),
    (["seeds"], None, "seeds.* must be a list of 2 entries"),
    (["seeds", 0], "x", "'x'"),
    (["seeds", 0], -1, "from 0 to"),
    (["seeds", 0], 2**70, "from 0 to"),
    (["wrappers"], [], "had 'DummyVecEnv', and this is VecNormalize of VecCheckNan of VecMonitor of DummyVecEnv"),
    (["wrappers", 0, "layer"], "VecFrameStack", "'VecFrameStack of .*this is VecNormalize of"),
    (["wrappers", 0, "state", "gamma"], 1.5, "gamma.* from 0.0 to 1.0"),
    (["wrappers", 0, "state", "clip_obs"], float("nan"), "clip_obs.* must be a number of at least 0.0, and is nan"),
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
    with pytest.raises(StateError, match=r"Pendulum-v1, g=9\.8\)', and this is .*Pendulum-v1, g=1\.62\)"):
        restore_env_state(moon, state)
    restore_env_state(shown, state)
    assert bits_of_state(capture_env_state(shown)) == bits_of_state(state)
