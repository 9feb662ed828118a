"""The attributes that environments and wrappers keep between steps, saved as plain values and checked when read."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import torch
from gymnasium.envs.classic_control import (
    AcrobotEnv,
    CartPoleEnv,
    Continuous_MountainCarEnv,
    MountainCarEnv,
    PendulumEnv,
)
from gymnasium.wrappers import (
    ClipAction,
    FlattenObservation,
    OrderEnforcing,
    PassiveEnvChecker,
    RescaleAction,
    RescaleObservation,
    TimeLimit,
)
from stable_baselines3.common.monitor import Monitor

from rlcore.state.generators import generator_from_state, generator_state
from rlcore.state.schema import FLOATS, misfit, read_count, read_record, read_tensor
from rlcore.types import StateDict, StateValue

Reader = Callable[[Any, str], Any]
"""(saved value, its place for the error) -> value of the attribute; raises StateError."""
Readers = Mapping[str, Reader]
"""By the names of the attributes."""


def array(shape: tuple[int, ...], dtypes: Collection[torch.dtype] | None = FLOATS) -> Reader:
    """Return a reader of arrays; None for ``dtypes`` allows any floating point numbers."""
    return lambda value, where: np.array(read_tensor(value, where, shape, dtypes, finite=False).detach().cpu().numpy())


def count(value: StateValue, where: str, least: int = 0) -> int:
    """Read an int of at least ``least``."""
    return read_count(value, where, math.inf, least)


def optional(reader: Reader) -> Reader:
    """Return a reader that allows None as well."""
    return lambda value, where: None if value is None else reader(value, where)


def _flag(value: StateValue, where: str) -> bool:
    if not isinstance(value, bool):
        raise misfit(where, "True or False", value)
    return value


def _floats(value: StateValue, where: str) -> list[float]:
    length = value.numel() if isinstance(value, torch.Tensor) else 0
    return read_tensor(value, where, (length,), (torch.float64,), finite=False).tolist()


def _scalar(value: StateValue, where: str) -> Any:
    return array((), None)(value, where)[()]


def _nothing(value: StateValue, where: str) -> None:
    if value is not None:
        raise misfit(where, "None", value)


GENERATOR: Readers = {
    "_np_random": optional(generator_from_state),
    "_np_random_seed": optional(lambda value, where: count(value, where, least=-1)),
}
"""What :class:`gymnasium.Env` draws from."""


def _physics(size: int) -> Readers:
    return {"state": optional(array((size,))), **GENERATOR}


# The keys are exact types: a subclass may keep more, so it has to answer for itself.
LAYERS: Mapping[type, Readers] = {
    CartPoleEnv: {**_physics(4), "steps_beyond_terminated": optional(count)},
    PendulumEnv: {**_physics(2), "last_u": optional(_scalar)},
    MountainCarEnv: _physics(2),
    Continuous_MountainCarEnv: _physics(2),
    AcrobotEnv: _physics(4),
    TimeLimit: {"_elapsed_steps": optional(count)},
    OrderEnforcing: {"_has_reset": _flag},
    PassiveEnvChecker: {
        "checked_reset": _flag,
        "checked_step": _flag,
        "checked_data_reuse": _flag,
        "_previous_data": _nothing,
    },
    Monitor: {"rewards": _floats, "needs_reset": _flag, "total_steps": count},
    ClipAction: {},
    FlattenObservation: {},
    RescaleAction: {},
    RescaleObservation: {},
}


def saved(owner: object, names: Collection[str]) -> StateDict:
    """Return the attributes of ``owner`` as plain values that share no memory with it."""
    if isinstance(owner, PassiveEnvChecker):
        # A restored environment steps without the reset that the checker waits for: its one-time checks count as done.
        return {**dict.fromkeys(names, bool(owner.checked_reset)), "_previous_data": None}
    # An attribute that a version of Gymnasium lacks is an error, except for those that the first reset creates.
    late = {name: None for name in ("state", "last_u") if name in names and not hasattr(owner, name)}
    return {name: None if name in late else _plain(getattr(owner, name)) for name in names}


def checked(state: StateValue, readers: Readers, where: str) -> dict[str, Any]:
    """Return the values of the attributes that were saved in ``state``.

    :param where: whose attributes they are, for the error
    :raises StateError: an attribute is missing, unknown, or has a value of the wrong type or shape
    """
    record = read_record(state, where, readers)
    return {name: reader(record[name], f"{where}.{name}") for name, reader in readers.items()}


def assign(owner: object, values: Mapping[str, Any]) -> None:
    """Set attributes of ``owner`` to values that :func:`checked` has returned."""
    for name, value in values.items():
        setattr(owner, name, value)


def _plain(value: Any) -> StateValue:
    if isinstance(value, np.random.Generator):
        return generator_state(value)
    if isinstance(value, list):
        return torch.tensor(value, dtype=torch.float64)
    if isinstance(value, np.bool_ | np.integer):
        return value.item()
    if isinstance(value, np.ndarray | np.floating | tuple):
        return torch.from_numpy(np.array(value))
    return value  # type: ignore[no-any-return]
