"""What a policy is given to act on, checked: nothing is cut, wrapped or made infinite in silence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray
from stable_baselines3.common.preprocessing import maybe_transpose

from rlcore.errors import SettingError
from rlcore.run.observation_scaling import Observation


def checked_observation(observation: Observation, space: spaces.Space[Any]) -> tuple[Observation, int]:
    """The observation as arrays of the space's kind, and of how many environments it is.

    :raises SettingError: for other keys, another shape, or values that the space does not have
    """
    if isinstance(observation, tuple) and len(observation) == 2 and isinstance(observation[1], Mapping):
        raise SettingError(
            "observation",
            "observation is a pair of an observation and a dict, as env.reset() returns them; give the first of them: "
            "observation, info = env.reset()",
        )
    if not isinstance(space, spaces.Dict):
        return _array(observation, space, "observation")
    _require_keys(observation, space, "observation")
    parts = {key: _array(observation[key], part, f"observation[{key!r}]") for key, part in space.spaces.items()}
    number = _common({key: n for key, (_, n) in parts.items()}, "observation", "environments")
    return {key: array for key, (array, _) in parts.items()}, number


def checked_sequence(observations: Observation, space: spaces.Space[Any]) -> tuple[Observation, int]:
    """A sequence of observations as arrays, and its length; 0 for what has none.

    :raises SettingError: for other keys than the space's, or parts of different lengths
    """
    if not isinstance(space, spaces.Dict):
        array = _as_array(observations, "observations")
        return array, len(array) if array.ndim else 0
    _require_keys(observations, space, "observations")
    arrays = {key: _as_array(observations[key], f"observations[{key!r}]") for key in space.spaces}
    lengths = {key: len(array) if array.ndim else 0 for key, array in arrays.items()}
    return arrays, _common(lengths, "observations", "steps")


def at_step(observations: Observation, step: int) -> Observation:
    """One observation of a sequence."""
    if isinstance(observations, Mapping):
        return {key: values[step] for key, values in observations.items()}
    return observations[step]


def check_state(state: Any, shape: tuple[int, ...]) -> None:
    """
    :param shape: of the hidden and of the cell states, (layers, n, hidden)
    :raises SettingError: for anything but two finite arrays of that shape
    """
    if not isinstance(state, tuple | list):
        raise SettingError("state", f"state={state!r:.80} is no pair of states; give what predict() returned, or None")
    shapes = [np.shape(part) for part in state]
    if shapes != [shape] * 2:
        raise _misshapen("state", shapes, f"two arrays of {shape}")
    for part in state:
        array = np.asarray(part)
        if array.dtype.kind not in "fiu":
            raise SettingError("state", f"state is of {array.dtype}, no number; give what predict() returned")
        _require_finite(array, array, "state")


def check_starts(starts: ArrayLike, n_envs: int) -> None:
    """
    :raises SettingError: for anything but one bool (or 0 or 1) for each environment
    """
    array = np.asarray(starts)
    if array.shape != (n_envs,):
        raise _misshapen("episode_start", array.shape, f"{(n_envs,)}, one for each environment")
    for value in array.tolist():
        if not isinstance(value, bool | int | float) or value not in (0, 1):
            raise SettingError("episode_start", f"episode_start holds {value!r}, neither True nor False; give a bool")


def _array(values: Any, space: spaces.Space[Any], name: str) -> tuple[NDArray[Any], int]:
    """An array of the space's type, and of how many environments it is."""
    assert space.dtype is not None, "only a Dict or Tuple of spaces has none"
    shape = tuple(space.shape or ())
    array = _as_array(values, name)
    if array.ndim in (3, 4):
        array = maybe_transpose(array, space)  # an image with its channels last
    batched = array.ndim == len(shape) + 1 and array.shape[1:] == shape
    if not batched and array.shape != shape:
        raise _misshapen(name, array.shape, f"{shape}, or {('n', *shape)} for n environments")
    if batched and not len(array):
        raise SettingError(name, f"{name} has the shape {array.shape}, of no environment; give at least one row")
    if not np.can_cast(array.dtype, space.dtype, "same_kind"):
        raise SettingError(name, f"{name} is of {array.dtype}, the policy's are of {space.dtype}; convert it")
    with np.errstate(over="ignore"):
        cast = array.astype(space.dtype)
    if cast.dtype.kind == "f":
        _require_finite(cast, array, name)
    else:
        _require_inside(array, space, name)
    return cast, len(array) if batched else 1


def _as_array(values: Any, name: str) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError as error:  # of lists that differ in length
        raise SettingError(name, f"{name}={values!r:.80} makes no array ({error}); give rows of one shape") from error


def _require_finite(array: NDArray[Any], given: NDArray[Any], name: str) -> None:
    """
    :param given: the array before its type was changed
    """
    bad = ~np.isfinite(array)
    if bad.any():
        value = float(given[bad][0])
        shown = "NaN" if np.isnan(value) else f"{value}"
        raise SettingError(
            name,
            f"{name} holds {shown} in {int(bad.sum())} of {array.size} places, which is no finite {array.dtype}, so no "
            "action would follow from it; look at where it comes from",
        )


def _require_inside(array: NDArray[Any], space: spaces.Space[Any], name: str) -> None:
    """Of whole numbers: those that the space counts, and of a Box those that its type holds."""
    low: Any = 0  # where every space of a policy starts to count
    if isinstance(space, spaces.Discrete):
        high: Any = space.n - 1
    elif isinstance(space, spaces.MultiDiscrete):
        high = space.nvec - 1
    elif isinstance(space, spaces.MultiBinary):
        high = 1
    else:
        low, high = np.iinfo(space.dtype).min, np.iinfo(space.dtype).max
    outside = (array < low) | (array > high)
    if outside.any():
        raise SettingError(
            name, f"{name} holds {array[outside].flat[0]}, which {space} does not have; give values of that space"
        )


def _require_keys(given: Any, space: spaces.Dict, name: str) -> None:
    found = sorted(map(str, given)) if isinstance(given, Mapping) else f"a {type(given).__name__}"
    if not isinstance(given, Mapping) or set(given) != set(space.spaces):
        raise SettingError(name, f"{name} must be a dict with the keys {sorted(space.spaces)}, and is {found}")


def _common(numbers: Mapping[str, int], name: str, unit: str) -> int:
    if len(set(numbers.values())) > 1:
        raise SettingError(name, f"the parts of {name} are of {numbers} {unit}; give as many of each")
    return next(iter(numbers.values()))


def _misshapen(name: str, found: object, wanted: str) -> SettingError:
    return SettingError(name, f"{name} has the shape {found}, which the policy cannot act on; give {wanted}")
