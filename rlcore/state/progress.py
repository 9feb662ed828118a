"""How far training has come: counters, exploration, and what Monitor noted of finished episodes."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm

from rlcore.checkpoint.refusal import RefusedError
from rlcore.checkpoint.values import plain
from rlcore.state.tree import FREE, Rule, fit, misfit
from rlcore.types import StateDict

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
