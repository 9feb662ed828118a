"""What the next step starts from: the last observations, as the policy and the environments have them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from torch import Tensor

from rlcore.checkpoint import codec
from rlcore.checkpoint.values import DTYPES
from rlcore.errors import CheckpointError, StateError
from rlcore.state.tree import FREE, describe, fit
from rlcore.types import StateDict, StateValue

Observations = NDArray[Any] | dict[str, NDArray[Any]]


def capture_position(model: BaseAlgorithm) -> StateDict | None:
    """Return what the next step starts from, or None before the model has reset its environments.

    ``observations`` are those that the policy reads, ``original_observations`` those before VecNormalize.
    """
    now: Any = model  # SB3 declares what it sets later as None
    if now._last_obs is None:
        return None
    return {
        "observations": to_state(now._last_obs),
        "original_observations": to_state(now._last_original_obs),
        "episode_starts": torch.as_tensor(now._last_episode_starts),
    }


def fit_position(state: object, lstm: StateDict, where: str, space: spaces.Space[Any], n_envs: int) -> dict[str, Any]:
    """Return the state of :func:`capture_position` with LSTM states, all of ``n_envs`` environments.

    :param lstm: the form of the LSTM states, by name
    :raises StateError: of other observations, environments or LSTMs
    """
    like = {**lstm, "observations": None, "original_observations": None, "episode_starts": None}
    rules = {"observations": FREE, "original_observations": FREE, "episode_starts": FREE}
    fitted: dict[str, Any] = fit(state, like, where, rules)
    starts = fitted["episode_starts"]
    form = torch.zeros(n_envs, dtype=starts.dtype if isinstance(starts, Tensor) else torch.float32)
    fit(starts, form, f"{where}['episode_starts']", {})
    if not bool(((starts == 0) | (starts == 1)).all()):
        raise StateError(f"{where}['episode_starts'] holds other values than 0 and 1; the state is damaged")
    check(f"{where}['observations']", fitted["observations"], space, n_envs)
    if fitted["original_observations"] is not None:
        check_number(f"{where}['original_observations']", fitted["original_observations"], n_envs)
    return fitted


def restore_position(model: BaseAlgorithm, fitted: Mapping[str, Any]) -> None:
    """Let the next step start from what :func:`fit_position` returned; the LSTM states are left to the caller."""
    now: Any = model
    now._last_obs = _copy(from_state(fitted["observations"]))
    now._last_original_obs = _copy(from_state(fitted["original_observations"]))
    now._last_episode_starts = fitted["episode_starts"].cpu().numpy().copy()


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
    if not is_finite(value):
        raise StateError(f"{name} holds NaN or infinity, from which no run goes on; the state is damaged")
    sizes = space.n if isinstance(space, spaces.Discrete) else getattr(space, "nvec", None)
    if sizes is not None and not (value.dtype.kind in "iu" and bool(((value >= 0) & (value < sizes)).all())):
        raise StateError(f"{name} holds other values than {space} has; the state is damaged")


def check_number(name: str, state: Any, n_envs: int) -> None:
    """Saved observations, of whatever space, must be of so many environments.

    :raises StateError: if they are not
    """
    observations = from_state(state)
    for value in observations.values() if isinstance(observations, dict) else [observations]:
        if not isinstance(value, np.ndarray) or value.shape[:1] != (n_envs,):
            raise StateError(f"{name} is {_shown(value)}, not one an environment")


def is_finite(observations: Observations) -> bool:
    """Whether there is neither NaN nor infinity in any part."""
    return all(np.isfinite(part).all() for part in parts_of(observations))


def parts_of(observations: Observations) -> Collection[NDArray[Any]]:
    return observations.values() if isinstance(observations, dict) else [observations]


def _shown(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} with shape {value.shape}"
    return f"a dict of {sorted(map(str, value))}" if isinstance(value, dict) else describe(value)


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(part) for key, part in value.items()}
    return None if value is None else value.copy()
