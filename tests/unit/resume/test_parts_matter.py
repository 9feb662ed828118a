"""Whatever a file holds is needed: a run that is continued without it ends differently."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from rlcore.checkpoint import load_container, save_container
from rlcore.errors import CheckpointError
from rlcore.resume import callback, file, load_exact, parts
from rlcore.state.generators import capture_generators
from tests.support.exact_runs import CASES, VARIANTS, Case, continued, differences, finished, interrupted, whole

ALL = {**CASES, **VARIANTS}


class Idle(NamedTuple):
    """Values without which a run ends alike.

    :param names: part of their names
    :param reason: why they make no difference
    :param where: for which runs that holds
    """

    names: str
    reason: str
    where: Callable[[Case], bool] = lambda _: True


IDLE = [
    Idle("param_groups.#.lr", "set from the schedule before every update"),
    Idle("progress._current_progress_remaining", "computed again after the first step"),
    Idle("progress.ep_info_buffer.#.t", "the clock of Monitor, which nothing reads"),
    Idle("log.", "recorded again before the next row is written", lambda case: off_policy(case)),
    Idle("log.excluded.", "recorded again with the next value"),
    Idle("log.values.rollout/", "recorded again before the next row is written"),
    Idle("log.values.time/", "recorded again before the next row is written"),
    Idle("position.original_observations", "they are the last observations", lambda case: not case.normalize),
    Idle("position.episode_starts", "GAE does not read the first one", lambda case: case.algorithm is not RecurrentPPO),
    Idle("._elapsed_steps", "CartPole does not reach its limit, 500", lambda case: case.env_id == "CartPole-v1"),
    Idle(".state.rewards", "VecMonitor reports the episodes instead", lambda case: case.monitored),
    Idle(".state.total_steps", "a count of Monitor that nothing reads"),
    Idle(".state.episode_count", "a count of VecMonitor that only its file has"),
    Idle(".state._np_random_seed", "what the generator was once seeded with"),
    Idle(".state.last_u", "only drawn on the screen"),
    Idle("_np_random.uinteger", "half a number that waits only where has_uint32 is 1"),
    Idle("action_space.uinteger", "half a number that waits only where has_uint32 is 1"),
]


def off_policy(case: Case) -> bool:
    return issubclass(case.algorithm, OffPolicyAlgorithm)


def is_idle(key: str, case: Case) -> bool:
    return any(each.names in key and each.where(case) for each in IDLE)


NEEDED = {
    "learnt": "PPO",
    "replay_buffer": "DQN",
    "action_noise": "TD3",
    "progress": "DQN",
    "log": "PPO",
    "position": "RecurrentPPO",
    "environments": "PPO",
}


def ends_alike(case: Case, path: Path, first_rows: Any, expected: Any) -> bool:
    fingerprint, rows = continued(case, path)
    return differences(expected[0], fingerprint) == [] and first_rows + rows == expected[1]


def test_every_part_has_a_run_that_needs_it() -> None:
    assert set(NEEDED) == set(parts.PARTS)


@pytest.mark.parametrize(("part", "name"), NEEDED.items())
def test_a_run_that_is_continued_without_a_part_ends_differently(
    part: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = whole(ALL[name])
    path, rows = interrupted(ALL[name], tmp_path)
    assert ends_alike(ALL[name], path, rows, expected)

    instead = {"position": forget_lstm_states, "environments": reset_environments}
    without = parts.PARTS[part]._replace(restore=instead.get(part, lambda *_: None))
    monkeypatch.setitem(parts.PARTS, part, without)

    if part == "progress":  # no total is known, so that there is nothing to do
        assert load_exact(path, ALL[name].envs()).num_timesteps == 0
    else:
        assert not ends_alike(ALL[name], path, rows, expected)


def reset_environments(model: Any, _: Any) -> None:
    """Without a reset they could not be stepped."""
    model.env.reset()


def forget_lstm_states(model: Any, state: Any) -> None:
    """Without observations ``learn()`` would reset the environments."""
    zeros = [torch.zeros_like(part) for part in state["lstm_states"]]
    parts.restore_position(model, {**state, "lstm_states": zeros})


@pytest.mark.parametrize("name", ["PPO", "SAC"])
def test_a_run_that_is_continued_without_the_generators_ends_differently(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = whole(ALL[name])
    path, rows = interrupted(ALL[name], tmp_path)
    monkeypatch.setattr(file, "restore_generators", lambda *_: None)
    torch.manual_seed(123)

    assert not ends_alike(ALL[name], path, rows, expected)


@pytest.mark.parametrize("name", ["PPO with gSDE", "SAC with gSDE"])
def test_with_gsde_the_generators_are_those_from_before_the_noise(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remember_too_late(self: Any, *arguments: Any, **named: Any) -> None:
        self._draw(*arguments, **named)
        self.generators = capture_generators()

    expected = whole(ALL[name])
    monkeypatch.setattr(callback.BeforeNoise, "_reset_noise", remember_too_late)
    path, rows = interrupted(ALL[name], tmp_path)

    assert not ends_alike(ALL[name], path, rows, expected)


@pytest.mark.parametrize("name", ["TD3", "PPO"])
def test_learn_alone_resets_action_noise_and_the_log(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = whole(ALL[name])
    path, rows = interrupted(ALL[name], tmp_path)
    monkeypatch.setattr(callback._PutBack, "_on_training_start", lambda _: None)

    assert not ends_alike(ALL[name], path, rows, expected)


def test_learn_alone_is_exact_where_there_is_no_action_noise(tmp_path: Path) -> None:
    expected, _ = whole(CASES["PPO"])
    path, _ = interrupted(CASES["PPO"], tmp_path)
    model = load_exact(path, CASES["PPO"].envs())

    model.learn(CASES["PPO"].total - model.num_timesteps, reset_num_timesteps=False)

    assert differences(expected, finished(model)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [*CASES, "PPO in workers, normalised", "TD3 in workers, normalised", "PPO with gSDE", "RecurrentPPO, normalised"],
)
def test_every_value_of_a_file_matters_or_it_is_known_why_not(name: str, tmp_path: Path) -> None:
    """Each is replaced by that of a model which has just begun under another seed."""
    case = ALL[name]
    expected = whole(case)
    path, rows = interrupted(case, tmp_path)
    content = load_container(path)
    fresh = begun(case)

    outcomes: dict[str, bool] = {}
    for place, value in values(content["state"]):
        key = ".".join("#" if isinstance(step, int) else str(step) for step in place)
        other = counterpart(fresh, place, value)
        if outcomes.get(key) or same(value, other):
            continue
        changed: Any = {**content, "state": copy.deepcopy(content["state"])}
        at(changed["state"], place[:-1])[place[-1]] = other
        save_container(tmp_path / "changed.zip", changed)
        try:
            outcomes[key] = not ends_alike(case, tmp_path / "changed.zip", rows, expected)
        except CheckpointError:
            outcomes[key] = True

    assert sum(outcomes.values()) > 10
    idle = [key for key, matters in outcomes.items() if not matters]
    assert [key for key in idle if not is_idle(key, case)] == []


def begun(case: Case) -> Any:
    model = case._replace(settings={**case.settings, "seed": 11}).model()
    model._setup_learn(case.total)
    state = parts.capture_parts(model, capture_generators())
    model.get_env().close()  # type: ignore[union-attr]
    return state


def values(state: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every value of a state with its place; a list of numbers counts as one."""
    if isinstance(state, dict):
        for key, value in state.items():
            yield from values(value, (*place, key))
    elif isinstance(state, list) and not (state and all(isinstance(each, int | float) for each in state)):
        for position, value in enumerate(state):
            yield from values(value, (*place, position))
    else:
        yield place, state


def at(state: Any, place: tuple[Any, ...]) -> Any:
    for step in place:
        state = state[step]
    return state


def counterpart(fresh: Any, place: tuple[Any, ...], value: Any) -> Any:
    """What a model that has just begun has at a place; zeros where it has nothing, or an array of another length."""
    try:
        other = at(fresh, place)
    except (KeyError, IndexError, TypeError):
        other = None
    if isinstance(value, torch.Tensor) and (not isinstance(other, torch.Tensor) or other.shape != value.shape):
        return torch.zeros_like(value)
    if isinstance(value, float) and not isinstance(other, float):
        return 0.0
    return 0 if type(value) is int and type(other) is not int else other


def same(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    return type(left) is type(right) and left == right
