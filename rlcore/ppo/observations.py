"""Observations: checked whenever environments return them, and as saved state."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from torch import Tensor

from rlcore.checkpoint import codec
from rlcore.checkpoint.values import DTYPES
from rlcore.errors import CheckpointError, NonFiniteObservationError, StateError
from rlcore.ppo import observations
from rlcore.state.registry import Scope, TrainingState
from rlcore.state.schema import describe
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


def require_finite(observations: Observations, raw: Callable[[], Observations]) -> None:
    """Refuse what no action could follow from.

    :param observations: what the policy reads, shape (n_envs, *shape), or a dict of such
    :param raw: gives what the environments returned, before VecNormalize made every one NaN because of one
    :raises NonFiniteObservationError: for NaN or infinity, naming the environments that returned it
    """
    if is_finite(observations):
        return
    found = _non_finite_rows(raw()) or _non_finite_rows(observations)
    several = len(found) > 1
    raise NonFiniteObservationError(
        found,
        f"the observation{'s' * several} of environment{'s' * several} {', '.join(map(str, found))} "
        f"{'hold' if several else 'holds'} NaN or infinity, so no action would follow; look at what reset() and step() "
        "return there (VecCheckNan finds the step). Nothing that was learnt has changed, and learn() would start from "
        "a reset of the environments.",
    )


def is_finite(observations: Observations) -> bool:
    """Whether there is neither NaN nor infinity in any part."""
    return all(np.isfinite(part).all() for part in _parts(observations))


def _non_finite_rows(observations: Observations) -> tuple[int, ...]:
    rows = {int(row) for part in _parts(observations) for row in np.argwhere(~np.isfinite(part))[:, 0]}
    return tuple(sorted(rows))


def _parts(observations: Observations) -> Collection[NDArray[Any]]:
    return observations.values() if isinstance(observations, dict) else [observations]


def _shown(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} with shape {value.shape}"
    return f"a dict of {sorted(map(str, value))}" if isinstance(value, dict) else describe(value)


class CheckedObservations(BaseAlgorithm):
    """Goes before an algorithm of Stable-Baselines3, which assigns ``_last_obs`` after every reset and step."""

    _checked_obs: observations.Observations | None = None

    @property
    def _last_obs(self) -> observations.Observations | None:
        """What the environments returned last; None before the first reset, and after what nothing can follow from."""
        return self._checked_obs

    @_last_obs.setter
    def _last_obs(self, returned: Any) -> None:
        """
        :raises NonFiniteObservationError: for NaN or infinity
        """
        self._checked_obs = None
        if returned is not None:
            observations.require_finite(returned, lambda: self._as_returned(returned))
        self._checked_obs = returned

    def _as_returned(self, normalized: Any) -> Any:
        normalizer = self._vec_normalize_env
        return normalized if normalizer is None else normalizer.get_original_obs()

    @contextmanager
    def _normalizer_unspoilt(self, training_state: TrainingState) -> Iterator[None]:
        """Put back what VecNormalize had learnt, where an observation that it read cannot be used."""
        before = training_state.capture(Scope.COLLECTED)
        try:
            yield
        except NonFiniteObservationError:
            training_state.restore(before, exact_match=False)
            raise
