"""The registered tasks hide what they say, rescale what they say, and stop and go on like any other environment."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rlcore import SettingError, StateError
from tests.support.environments import actions_for, bits, edit, make, run, snapshot, through_file
from verification import environments as environments  # registers them
from verification.experiments.second_environment import LONGEST, Drift, in_drift
from verification.probes.make import Make

IDS = ["rlcore/MaskedVelocityCartPole-v0", "rlcore/MaskedVelocityPendulum-v0", "rlcore/ShiftingRewardScale-v0"]
SHIFTING = "rlcore/ShiftingRewardScale-v0"


@pytest.mark.parametrize(
    ("masked", "whole", "visible", "torque"),
    [(IDS[0], "CartPole-v1", [0, 2], 1), (IDS[1], "Pendulum-v1", [0, 1], 2)],
)
def test_a_masked_environment_is_the_whole_one_without_its_velocities(
    masked: str, whole: str, visible: list[int], torque: int
) -> None:
    env, reference = gym.make(masked), gym.make(whole)
    seen, full = env.reset(seed=3)[0], reference.reset(seed=3)[0]
    assert bits(seen) == bits(full[visible])
    for action in actions_for(env.action_space, 25):
        observation, *rest = env.step(action)
        expected, *expected_rest = reference.step(torque * action)
        assert bits(observation) == bits(expected[visible])
        np.testing.assert_equal(rest, expected_rest)
        if rest[1]:
            break
    assert env.observation_space.contains(seen)
    assert gym.spec(masked).max_episode_steps == gym.spec(whole).max_episode_steps


def test_the_reward_scale_shifts_at_steps_of_the_environments_life() -> None:
    env = gym.make(SHIFTING, shifts=[[3, 100.0], [12, 0.25]])
    env.reset(seed=0)
    rewards, falls = [], 0
    for _ in range(15):
        _, reward, terminated, _, _ = env.step(1)
        rewards.append(reward)
        if terminated:
            falls += 1
            env.reset()
    assert falls == 1
    assert rewards == [1.0] * 3 + [100.0] * 9 + [25.0] * 3


@pytest.mark.parametrize("shifts", [5, [[3]], [[3.0, 2.0]], [[-1, 2.0]], [[3, 0.0]], [[5, 2.0], [5, 3.0]]], ids=repr)
def test_shifts_that_cannot_be_used_are_refused_with_what_to_write(shifts: Any) -> None:
    with pytest.raises(SettingError, match=r"shifts=.*\[\[10000, 100\.0\]") as caught:
        gym.make(SHIFTING, shifts=shifts)
    assert repr(shifts) in str(caught.value)


BAD: list[tuple[list[str | int], Any, str]] = [
    (["layers", 4, "state", "state"], 0, r"shape \((4|2),\)"),
    (["layers", 4, "state", "shifts"], [[3, 2.0]], r"shifts \[\[3, 2.0\]\].*same shifts"),
    (["layers", 4, "state", "shifts"], None, "same shifts"),
    (["layers", 4, "state", "life_steps"], -1, "life_steps.* -1"),
    (["layers", 4, "state"], {"shifts": [[40, 8.0], [90, 0.5]]}, "life_steps"),
]


@pytest.mark.parametrize("env_id", IDS)
def test_a_fresh_environment_continues_bit_exactly_or_refuses(env_id: str) -> None:
    settings = {"shifts": [[40, 8.0], [90, 0.5]]} if env_id == SHIFTING else {}
    env, fresh = make(env_id, **settings), make(env_id, **settings)
    actions = actions_for(env.action_space, 120)
    env.reset(seed=1)
    run(env, actions[:33])
    state = through_file(env.get_state())
    for path, value, message in BAD if env_id == SHIFTING else BAD[:1]:
        with pytest.raises(StateError, match=message):
            fresh.set_state(edit(state, path, value))

    fresh.set_state(state)

    assert run(fresh, actions[33:]) == run(env, actions[33:])
    assert snapshot(fresh) == snapshot(env)


def test_the_id_with_its_module_works_where_that_was_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    for env_id in IDS:
        monkeypatch.delitem(gym.registry, env_id)
    monkeypatch.delitem(sys.modules, "verification.environments")
    env = gym.make(f"verification.environments:{IDS[0]}")
    assert env.spec is not None
    assert (env.spec.id, env.reset()[0].shape) == (IDS[0], (2,))


def test_the_reward_is_what_is_left_of_the_way_to_an_end() -> None:
    env = Drift()
    env.reset(seed=0)
    seen, reward, ended, _, _ = env.step(1)
    assert reward == pytest.approx(1.0 - abs(seen[0]))
    assert not ended
    env.reset(seed=0)
    ends = [env.step(1)[1:3] for _ in range(60)]
    first = next(step for step, (_, ended) in enumerate(ends) if ended)
    assert all(reward > 0.0 for reward, ended in ends[:first])
    assert ends[first][0] == 0.0


def test_an_episode_that_stays_on_the_line_ends_in_time() -> None:
    envs = in_drift(Make()).envs(0, n_envs=2)
    seen, lengths = envs.reset(), []
    for _ in range(2 * LONGEST):
        seen, _, _, infos = envs.step((seen[:, 0] < 0.0).astype(int))
        lengths += [info["episode"]["l"] for info in infos if "episode" in info]
    assert max(lengths) == LONGEST
