"""How far a training has come: its counters, the window of finished episodes, and which parameters are frozen."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm
from torch import Tensor

from rlcore.checkpoint import codec
from rlcore.state.tree import FREE, Rule, fit, misfit
from rlcore.types import StateDict, plain

WINDOWS = ("ep_info_buffer", "ep_success_buffer")
COUNTERS = ("num_timesteps", "_total_timesteps", "_episode_num", "_n_updates", "_n_calls")
FORM: dict[str, Any] = {**dict.fromkeys(COUNTERS, 0), "_current_progress_remaining": 1.0, "exploration_rate": 0.0}
"""Attributes; ``_n_calls`` and ``exploration_rate`` are those of DQN and QRDQN alone."""


def capture_progress(model: BaseAlgorithm) -> StateDict:
    """Return counters, what a file can hold of the window of finished episodes, and which parameters are frozen."""
    state: StateDict = {name: plain(getattr(model, name)) for name in FORM if hasattr(model, name)}
    if model._total_timesteps % 1 == 0:
        state["_total_timesteps"] = int(model._total_timesteps)  # a float after learn(1e5)
    for name in WINDOWS:
        window = getattr(model, name)
        state[name] = None if window is None else [_storable(entry) for entry in window]
    state["frozen"] = [name for name, each in model.policy.named_parameters() if not each.requires_grad]
    return state


def _storable(value: Any) -> Any:
    """Return what a file can hold of an entry of an episode; None for any other object in it."""
    if isinstance(value, dict):
        entries = {key: _storable(each) for key, each in value.items()}
        return {key: each for key, each in entries.items() if each is not None or value[key] is None}
    if isinstance(value, list | tuple):
        return [_storable(each) for each in value]
    stored = codec.encode(value.tolist() if isinstance(value, Tensor) else value, "", exact=True)
    return stored if codec.is_whole(stored) else None


def restore_progress(model: BaseAlgorithm, state: object, least: float = -math.inf) -> None:
    """Continue to count where :func:`capture_progress` was called.

    :param least: smallest remaining progress; Stable-Baselines3 goes below 0 beyond the total
    :raises StateError: a value is missing, unknown or of another type; nothing was changed
    """
    like: dict[str, Any] = {name: form for name, form in FORM.items() if hasattr(model, name)}
    rules = {"_current_progress_remaining": Rule(least, 1.0), "exploration_rate": Rule(0.0, 1.0)}
    like |= {**dict.fromkeys(WINDOWS), "frozen": [""]}
    rules |= {**dict.fromkeys(WINDOWS, FREE), "frozen": Rule(any_length=True, may_lack=True)}
    fitted = fit(codec.decode(state, "progress_state", {}), like, "progress_state", rules)  # type: ignore[arg-type]
    if len({fitted[name] is None for name in WINDOWS}) > 1:
        raise misfit(
            f"progress_state[{WINDOWS[1]!r}]", f"None where {WINDOWS[0]} is, and only there", fitted[WINDOWS[1]]
        )
    for name in WINDOWS:
        window = fitted[name]
        if window is None:
            continue
        is_read = isinstance(window, list) and (name != WINDOWS[0] or all(isinstance(each, dict) for each in window))
        columns = [[each.get(key) for each in window] for key in "rl"] if is_read and name == WINDOWS[0] else [window]
        if not is_read or not all(map(_has_mean, columns)):
            raise misfit(f"progress_state[{name!r}]", "None or a list of episodes with numbers for the log", window)
        fitted[name] = deque(window, maxlen=model._stats_window_size)
    parameters, frozen = dict(model.policy.named_parameters()), fitted.pop("frozen", None)
    if unknown := sorted(set(frozen or ()) - set(parameters)):
        raise misfit("progress_state['frozen']", "a list of names of parameters", unknown[0])
    for name, parameter in parameters.items() if frozen is not None else ():
        parameter.requires_grad_(name not in frozen)
    vars(model).update(fitted)


def _has_mean(values: list[Any]) -> bool:
    """Return whether the logger can average the values: numbers, or lists and arrays of one shape."""
    try:
        array = np.asarray(values) if all(map(_is_numeric, values)) else np.empty(0)  # of texts, it could be large
    except (ValueError, TypeError, RuntimeError):  # several shapes
        return False
    return not values or (array.dtype.kind in "biuf" and array.size > 0)


def _is_numeric(value: object) -> bool:
    kinds = int | float | np.generic | np.ndarray
    return all(map(_is_numeric, value)) if isinstance(value, list | tuple) else isinstance(value, kinds)
