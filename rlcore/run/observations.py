"""Checks and normalises the observations, states and episode starts that a policy acts on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray
from stable_baselines3.common.preprocessing import maybe_transpose
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import VecNormalize

from rlcore.env_state import restore_normalizer
from rlcore.errors import SettingError, StateError
from rlcore.state.schema import misfit, read_dict
from rlcore.types import StateDict

Observation = Any
"""An array of numbers, or a dict of them by the keys of a Dict space."""


def read_normalizers(state: StateDict | None, space: spaces.Space[Any]) -> list[VecNormalize]:
    """The VecNormalize wrappers of a saved ``normalizer_state`` that normalise observations, the inner ones first.

    They have no environments, as after unpickling.

    :raises StateError: if the state is damaged or of another observation space
    """
    if state is None:
        return []
    layers: Any = state.get("layers")
    if not isinstance(layers, list):
        raise misfit("normalizer_state['layers']", "a list", layers)
    layers = [read_dict(layer, "normalizer_state['layers']") for layer in reversed(layers)]
    observing = [layer for layer in layers if layer.get("norm_obs") is not False and layer.get("observation") != []]
    return [_normalizer(layer, space) for layer in observing]


def _normalizer(layer: StateDict, space: spaces.Space[Any]) -> VecNormalize:
    observation: Any = layer.get("observation")
    if not isinstance(observation, list):
        raise misfit("normalizer_state['observation']", "a list", observation)
    parts: Mapping[Any, spaces.Space[Any]] = space.spaces if isinstance(space, spaces.Dict) else {None: space}
    keys = [read_dict(moments, "observation statistics").get("key") for moments in observation]
    for key in keys:
        if key not in list(parts):
            raise StateError(f"observation statistics of {key!r:.80}, which these observations do not have")
    statistics = {key: RunningMeanStd(shape=parts[key].shape or ()) for key in keys}
    # The defaults are VecNormalize's own, for statistics that were saved without them.
    numbers = {"clip_obs": layer.get("clip_obs", 10.0), "epsilon": layer.get("epsilon", 1e-8)}
    for name, value in numbers.items():
        if not isinstance(value, float) or not value > 0:
            raise misfit(f"normalizer_state['{name}']", "a number above 0", value)
    normalizer = VecNormalize.__new__(VecNormalize)
    own = {"norm_obs": True, "norm_obs_keys": keys, "obs_rms": statistics.get(None, statistics), **numbers}
    normalizer.__setstate__({**own, "ret_rms": RunningMeanStd(shape=())})
    restore_normalizer(normalizer, {"layers": [layer]})
    return normalizer


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
    fitted = {part.key: _fitted(part) for part in parts_of(observation, space, "observation")}
    number = common_number({key: n for key, (_, n) in fitted.items()}, "observation", "environments")
    return whole({key: array for key, (array, _) in fitted.items()}), number


class Part(NamedTuple):
    """An entry of a Dict observation, or the whole observation under the key None; ``name`` is for errors."""

    key: str | None
    array: NDArray[Any]
    space: spaces.Space[Any]
    name: str


def parts_of(given: Any, space: spaces.Space[Any], name: str) -> list[Part]:
    """The entries of an observation, or of a sequence of them, as arrays."""
    if not isinstance(space, spaces.Dict):
        return [Part(None, _as_array(given, name), space, name)]
    found = sorted(map(str, given)) if isinstance(given, Mapping) else f"a {type(given).__name__}"
    if not isinstance(given, Mapping) or set(given) != set(space.spaces):
        raise SettingError(name, f"{name} must be a dict with the keys {sorted(space.spaces)}, and is {found}")
    names = {key: f"{name}[{key!r}]" for key in space.spaces}
    return [Part(key, _as_array(given[key], names[key]), part, names[key]) for key, part in space.spaces.items()]


def whole(parts: Mapping[str | None, Any]) -> Observation:
    """The observation that has these entries."""
    return parts[None] if None in parts else dict(parts)


def common_number(numbers: Mapping[str | None, int], name: str, unit: str) -> int:
    """The number that all entries share, or SettingError."""
    if len(set(numbers.values())) > 1:
        raise SettingError(name, f"the parts of {name} are of {numbers} {unit}; give as many of each")
    return next(iter(numbers.values()))


def _as_array(values: Any, name: str) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError as error:  # of lists that differ in length
        raise SettingError(name, f"{name}={values!r:.80} makes no array ({error}); give rows of one shape") from error


def _fitted(part: Part) -> tuple[NDArray[Any], int]:
    """An array of the space's type, and of how many environments it is."""
    _, array, space, name = part
    assert space.dtype is not None, "only a Dict or Tuple of spaces has none"
    shape = tuple(space.shape or ())
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
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        high: Any = (space.n if isinstance(space, spaces.Discrete) else space.nvec) - 1
    elif isinstance(space, spaces.MultiBinary):
        high = 1
    else:
        low, high = np.iinfo(space.dtype).min, np.iinfo(space.dtype).max
    outside = (array < low) | (array > high)
    if outside.any():
        raise SettingError(
            name, f"{name} holds {array[outside].flat[0]}, which {space} does not have; give values of that space"
        )


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


def _misshapen(name: str, found: object, wanted: str) -> SettingError:
    return SettingError(name, f"{name} has the shape {found}, which the policy cannot act on; give {wanted}")
