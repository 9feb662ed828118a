"""The scheduler's state: captured in plain Python, checked as a whole before anything is restored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlcore.errors import SettingError, StateError
from rlcore.pbt import member_files
from rlcore.pbt.hyperparams import HyperparamConfig, Hyperparams
from rlcore.pbt.member import PopulationMember, member_from_state
from rlcore.types import StateDict

if TYPE_CHECKING:
    from rlcore.pbt.scheduler import PBTScheduler

COUNTERS = ("exploitation_count", "exploration_count")
KEYS = {"members", "generator", *COUNTERS}


def capture(scheduler: PBTScheduler) -> StateDict:
    """Members, counters and generator."""
    return {
        "members": [member.state_dict() for member in scheduler.population],
        "generator": scheduler.generator.bit_generator.state,  # type: ignore[dict-item]
        **{name: getattr(scheduler, name) for name in COUNTERS},
    }


def restore(scheduler: PBTScheduler, state: StateDict) -> None:
    """Put back what :func:`capture` gave.

    :raises StateError: if it does not fit; nothing is changed
    """
    if not isinstance(state, dict) or set(state) != KEYS:
        found = sorted(map(str, state)) if isinstance(state, dict) else type(state).__name__
        raise StateError(f"a scheduler's state has {sorted(KEYS)}, and this is {found}; the state is of something else")
    members = _checked_members(scheduler, state["members"])
    generator = _checked_generator(state["generator"])
    counters = {name: _checked_count(name, state[name]) for name in COUNTERS}
    for member in members:
        if member.saved_steps:
            path = member_files.path_of(scheduler.config.checkpoint_dir, member, member.saved_steps[-1])
            member.checkpoint_path = str(path)
    scheduler.population = members
    scheduler.generator = generator
    for name, count in counters.items():
        setattr(scheduler, name, count)


def _checked_members(scheduler: PBTScheduler, states: Any) -> list[PopulationMember]:
    size = scheduler.config.population_size
    if not isinstance(states, list) or len(states) not in (0, size):
        found = len(states) if isinstance(states, list) else type(states).__name__
        raise StateError(f"the state has {found} members and population_size={size}; give the same configuration")
    members = [member_from_state(each) for each in states]
    for number, member in enumerate(members):
        if member.member_id != number:
            raise StateError(f"member {number} of the state has the number {member.member_id}; the state is damaged")
        for held in (member.hyperparams, member.checkpoint_hyperparams):
            if held is not None:
                _check_values(number, held, scheduler.config.hyperparams)
    return members


def _check_values(number: int, held: Hyperparams, configs: Sequence[HyperparamConfig]) -> None:
    missing = sorted({config.name for config in configs} - set(held))
    if missing:
        raise StateError(
            f"member {number} of the state lacks the hyperparameters {missing}; give the same configuration"
        )
    for config in configs:
        try:
            config.check_value(held[config.name])
        except SettingError as error:
            raise StateError(f"member {number} of the state has another configuration's values: {error}") from error


def _checked_generator(state: Any) -> np.random.Generator:
    bits = np.random.PCG64()
    try:
        bits.state = state
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise StateError(f"the generator's state is none that PCG64 takes ({error}); the state is damaged") from error
    return np.random.Generator(bits)


def _checked_count(name: str, value: object) -> int:
    if type(value) is not int or value < 0:
        raise StateError(f"{name} is {value!r}, no count; the state is damaged")
    return value
