"""Observations of any supported space as plain state, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from rlcore.checkpoint import codec
from rlcore.checkpoint.values import DTYPES
from rlcore.errors import CheckpointError, StateError
from rlcore.state_fields import describe
from rlcore.types import StateValue

Observations = NDArray[Any] | dict[str, NDArray[Any]]


def to_state(observations: Observations | None) -> StateValue:
    """A tensor for an array, a dict for a Dict; an array of a type that no file holds as a tensor goes as its bytes."""
    if observations is None:
        return None
    if isinstance(observations, Mapping):
        return {key: to_state(part) for key, part in observations.items()}
    tensor = torch.as_tensor(observations)
    return tensor if tensor.dtype in DTYPES.values() else codec.encode(observations, "observations")


def from_state(state: Any) -> Any:
    """What ``to_state`` was given.

    :raises StateError: if it is no such state
    """
    if state is None:
        return None
    if isinstance(state, Tensor):
        return state.cpu().numpy()
    if not isinstance(state, dict):
        raise StateError(f"the observations are {describe(state)}, no array and no dict of arrays; they are damaged")
    if codec.KIND not in state:
        return {key: from_state(part) for key, part in state.items()}
    try:
        return codec.decode(state, "observations", {})
    except CheckpointError as error:
        raise StateError(f"the observations are damaged: {error.reason}") from error


def check(name: str, state: Any, space: spaces.Space[Any], n_envs: int) -> None:
    """Saved observations must be of this space and of so many environments.

    :param name: where they stand, for the error
    :raises StateError: if they are not
    """
    _check(name, from_state(state), space, n_envs)


def _check(name: str, value: Any, space: spaces.Space[Any], n_envs: int) -> None:
    if isinstance(space, spaces.Dict):
        if not isinstance(value, dict) or set(value) != set(space):
            raise StateError(f"{name} is {_shown(value)}, the model's is a dict of {sorted(space)}")
        for key, part in space.items():
            _check(f"{name}[{key!r}]", value[key], part, n_envs)
        return
    shape = (n_envs, *(space.shape or ()))
    if not isinstance(value, np.ndarray) or value.shape != shape:
        raise StateError(f"{name} is {_shown(value)}, the model's has shape {shape}; the state is of another model")


def check_number(name: str, state: Any, n_envs: int) -> None:
    """Saved observations, of whatever space, must be of so many environments.

    :raises StateError: if they are not
    """
    observations = from_state(state)
    for value in observations.values() if isinstance(observations, dict) else [observations]:
        if not isinstance(value, np.ndarray) or value.shape[:1] != (n_envs,):
            raise StateError(f"{name} is {_shown(value)}, not one an environment")


def _shown(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} with shape {value.shape}"
    return f"a dict of {sorted(map(str, value))}" if isinstance(value, dict) else describe(value)
