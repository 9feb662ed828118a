"""One environment continues bit-exactly from a saved state, and refuses what does not fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from rlcore.envs import ResumableEnv, SupportsState
from rlcore.errors import SettingError, StateError
from rlcore.state.position import generator_state
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
    run,
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


def test_a_number_keeps_its_precision() -> None:
    env, fresh = make("Pendulum-v1"), make("Pendulum-v1")
    env.reset(seed=1)
    env.step(np.array([0.3], np.float32))
    fresh.set_state(env.get_state())
    last: Any = fresh.get_wrapper_attr("last_u")
    assert (last, type(last)) == (np.float32(0.3), np.float32)


def test_an_environment_that_was_never_reset_keeps_needing_its_reset() -> None:
    env = make("Pendulum-v1")
    env.set_state(make("Pendulum-v1").get_state())
    with pytest.raises(RuntimeError, match="needs reset"):
        env.step(np.zeros(1, np.float32))
    env.reset(seed=1)
    env.step(np.zeros(1, np.float32))


@pytest.mark.parametrize("kind", ["PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"])
def test_every_numpy_generator_continues(kind: str) -> None:
    env, fresh = make("CartPole-v1"), make("CartPole-v1")
    env.reset(seed=1)
    env.unwrapped.np_random = np.random.Generator(getattr(np.random, kind)(5))
    env.unwrapped.np_random.random(3, dtype=np.float32)

    fresh.set_state(through_file(env.get_state()))

    assert fresh.unwrapped.np_random.random(9).tolist() == env.unwrapped.np_random.random(9).tolist()
    assert fresh.unwrapped.np_random_seed == -1


def test_the_monitor_reports_the_whole_episode_after_a_restore() -> None:
    env, fresh = make("MountainCar-v0"), make("MountainCar-v0")
    env.reset(seed=1)
    run(env, [0] * 150)
    fresh.set_state(env.get_state())
    info = [fresh.step(0)[4] for _ in range(50)][-1]
    assert (info["episode"]["r"], info["episode"]["l"]) == (-200.0, 200)
    assert fresh.get_wrapper_attr("get_total_steps")() == 200


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


def beyond_its_keys() -> np.random.Generator:
    """A generator that would read the next number from the memory behind its keys."""
    generator = np.random.Generator(np.random.MT19937(0))
    state: Any = generator.bit_generator.state
    state["state"]["pos"] = 10**6
    generator.bit_generator.state = state
    return generator


# layers: 0 Monitor, 1 TimeLimit, 2 OrderEnforcing, 3 PassiveEnvChecker, 4 CartPole
BAD: list[tuple[list[str | int], Any, str]] = [
    (["environment"], "PendulumEnv", "'CartPoleEnv'.*'PendulumEnv'"),
    (["id"], "CartPole-v0", "'CartPole-v1'.*'CartPole-v0'"),
    (["layers"], [], "a list of 5 entries"),
    (["layers"], None, "a list of 5 entries"),
    (["layers", 1, "layer"], "TimeLimit(200)", r"'TimeLimit\(500\)'.*'TimeLimit\(200\)'"),
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
    (["layers", 4, "state", "_np_random"], {"bit_generator": "os.system"}, "os.system"),
    (["layers", 4, "state", "_np_random", "state"], {}, "inc"),
    (["layers", 4, "state", "_np_random", "state", "inc"], 2**128, "inc"),
    (["layers", 4, "state", "_np_random", "uinteger"], "x", "'x'"),
    (["layers", 4, "state", "_np_random"], generator_state(beyond_its_keys()), "'pos'"),
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
