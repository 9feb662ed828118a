"""Where a training is: counters and finished episodes, and the last observations, from which the next step starts."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from torch import Tensor

from rlcore.checkpoint import codec
from rlcore.checkpoint.refusal import RefusedError
from rlcore.checkpoint.values import DTYPES, plain
from rlcore.errors import CheckpointError, NonFiniteObservationError, StateError
from rlcore.state.tree import FREE, REMEDY, Rule, describe, fit, misfit
from rlcore.types import StateDict, StateValue

Observations = NDArray[Any] | dict[str, NDArray[Any]]
WINDOWS = ("ep_info_buffer", "ep_success_buffer")
_COUNTERS = ("num_timesteps", "_total_timesteps", "_episode_num", "_n_updates", "_n_calls")
_FORM: dict[str, Any] = {**dict.fromkeys(_COUNTERS, 0), "_current_progress_remaining": 1.0, "exploration_rate": 0.0}
"""Attributes; ``_n_calls`` and ``exploration_rate`` are those of DQN and QRDQN alone."""


def capture_progress(model: BaseAlgorithm) -> StateDict:
    """Return the counters, the remaining progress, the state of exploration, and the window of finished episodes.

    Objects that no file can hold are left out of the episodes: ``info_keywords`` of Monitor may name any.
    """
    state: StateDict = {name: getattr(model, name) for name in _FORM if hasattr(model, name)}
    for name in WINDOWS:
        window = getattr(model, name)
        state[name] = None if window is None else [_plain(entry) for entry in window]
    return state


def restore_progress(model: BaseAlgorithm, state: object, least: float = -math.inf) -> None:
    """Continue to count where :func:`capture_progress` was called.

    :param least: smallest remaining progress; Stable-Baselines3 goes below 0 beyond the total
    :raises StateError: a value is missing, unknown or of another type; nothing was changed
    """
    like = {name: form for name, form in _FORM.items() if hasattr(model, name)} | dict.fromkeys(WINDOWS)
    rules = {"_current_progress_remaining": Rule(least, 1.0), "exploration_rate": Rule(0.0, 1.0)}
    fitted = fit(state, like, "progress_state", rules | dict.fromkeys(WINDOWS, FREE))
    infos, successes = (fitted[name] for name in WINDOWS)
    if not (infos is None or (_are_dicts(infos) and all(_has_mean([i.get(k) for i in infos]) for k in ("r", "l")))):
        raise misfit("progress_state['ep_info_buffer']", "None or a list of dicts with numbers for 'r' and 'l'", infos)
    if not (successes is None or (isinstance(successes, list) and _has_mean(successes))):
        raise misfit("progress_state['ep_success_buffer']", "None or a list of numbers", successes)
    for name in WINDOWS:
        window = fitted[name]
        fitted[name] = None if window is None else deque(window, maxlen=model._stats_window_size)
    vars(model).update(fitted)


def _are_dicts(infos: object) -> bool:
    return isinstance(infos, list) and all(isinstance(info, dict) for info in infos)


def _has_mean(values: list[Any]) -> bool:
    """Return whether the logger can average the values: numbers, or lists of one shape, as arrays are saved."""
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError):  # several shapes
        return False
    return not values or (array.dtype.kind in "biuf" and array.size > 0)


def _plain(entry: Any) -> Any:
    """Return numbers of NumPy as Python's and arrays as lists; leave out of a dict what no file can hold."""
    if isinstance(entry, dict):
        return {key: value for key, value in ((k, _plain(v)) for k, v in entry.items()) if _is_storable(value)}
    if isinstance(entry, np.ndarray):
        return entry.tolist()
    return entry.item() if isinstance(entry, np.generic) else entry


def _is_storable(value: object) -> bool:
    if isinstance(value, bool | int | float | str):
        return True
    try:
        plain({"": value})
    except RefusedError:
        return False
    return True


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
    free = dict.fromkeys(("observations", "original_observations", "episode_starts"), FREE)
    like: dict[Any, Any] = {**lstm, **dict.fromkeys(free)}
    fitted: dict[str, Any] = fit(state, like, where, free)
    starts = fitted["episode_starts"]
    form = torch.zeros(n_envs, dtype=starts.dtype if isinstance(starts, Tensor) else torch.float32)
    fit(starts, form, f"{where}['episode_starts']", {})
    if not bool(((starts == 0) | (starts == 1)).all()):
        raise StateError(f"{where}['episode_starts'] holds other values than 0 and 1; the state is damaged")
    _check(from_state(fitted["observations"]), f"{where}['observations']", space, n_envs)
    if fitted["original_observations"] is not None:
        _check(from_state(fitted["original_observations"]), f"{where}['original_observations']", None, n_envs)
    return fitted


def restore_position(model: BaseAlgorithm, fitted: Mapping[str, Any]) -> None:
    """Let the next step start from what :func:`fit_position` returned; the LSTM states are left to the caller."""
    now: Any = model
    now._last_obs = from_state(fitted["observations"])
    now._last_original_obs = from_state(fitted["original_observations"])
    now._last_episode_starts = fitted["episode_starts"].cpu().numpy().copy()


def to_state(observations: Observations | None) -> StateValue:
    """Return a tensor for an array, a dict for a Dict; an array of a type that torch lacks is encoded as its bytes."""
    if observations is None:
        return None
    if isinstance(observations, Mapping):
        return {key: to_state(part) for key, part in observations.items()}
    tensor = torch.as_tensor(observations)
    return tensor if tensor.dtype in DTYPES.values() else codec.encode(observations, "observations")


def from_state(state: Any) -> Any:
    """Return what :func:`to_state` was given.

    :raises StateError: the state is damaged
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


def _check(value: Any, where: str, space: spaces.Space[Any] | None, n_envs: int) -> None:
    """Raise StateError unless these are observations of ``space`` (None for any), one for each environment."""
    keys = set(space) if isinstance(space, spaces.Dict) else None
    if isinstance(value, dict) and (space is None or set(value) == keys):
        for key, part in value.items():
            _check(part, f"{where}[{key!r}]", None if space is None else space[key], n_envs)  # type: ignore[index]
        return
    shape = value.shape if isinstance(value, np.ndarray) else None
    if shape is None or keys is not None or shape != (n_envs, *(shape[1:] if space is None else space.shape or ())):
        wanted = f"a dict of {sorted(keys)}" if keys is not None else "an array for each environment of the space"
        raise StateError(f"{where} must be {wanted}, and has the shape {shape}; {REMEDY}")
    if space is None:
        return
    if not np.isfinite(value).all():
        raise StateError(f"{where} holds NaN or infinity, from which no run goes on; the state is damaged")
    sizes = space.n if isinstance(space, spaces.Discrete) else getattr(space, "nvec", None)
    if sizes is not None and not (value.dtype.kind in "iu" and bool(((value >= 0) & (value < sizes)).all())):
        raise StateError(f"{where} holds other values than {space} has; the state is damaged")


class CheckedObservations(BaseAlgorithm):
    """Goes before an algorithm of Stable-Baselines3, which assigns ``_last_obs`` after every reset and step."""

    _checked_obs: Observations | None = None

    @property
    def _last_obs(self) -> Observations | None:
        """Return what the environments returned last; None before the first reset, and after NaN or infinity."""
        return self._checked_obs

    @_last_obs.setter
    def _last_obs(self, returned: Any) -> None:
        self._checked_obs = None
        if found := _non_finite_rows(returned):
            normalizer = self._vec_normalize_env  # in which one NaN makes the observations of all environments NaN
            found = found if normalizer is None else _non_finite_rows(normalizer.get_original_obs()) or found
            raise NonFiniteObservationError(
                found,
                f"the observation of environment {', '.join(map(str, found))} holds NaN or infinity, so no action "
                "would follow. Look at what reset() and step() return; nothing that was learnt has changed.",
            )
        self._checked_obs = returned


def _non_finite_rows(observations: Any) -> tuple[int, ...]:
    parts = observations.values() if isinstance(observations, dict) else [] if observations is None else [observations]
    bad = [part for part in parts if not np.isfinite(part).all()]
    return tuple(sorted({int(row) for part in bad for row in np.argwhere(~np.isfinite(part))[:, 0]}))
