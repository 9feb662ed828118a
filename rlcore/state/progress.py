"""How far training has come: counters, exploration, and what Monitor noted of finished episodes."""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm

from rlcore.checkpoint.refusal import RefusedError
from rlcore.checkpoint.values import plain
from rlcore.errors import ResumeWarning
from rlcore.state.tree import FREE, LARGEST_COUNT, Rule, fit, misfit
from rlcore.types import StateDict
from rlcore.warn import warn_caller

_COUNTERS = ("num_timesteps", "_total_timesteps", "_episode_num", "_n_updates")
_PROGRESS = "_current_progress_remaining"
WINDOWS = ("ep_info_buffer", "ep_success_buffer")
_EXPLORATION: dict[str, Any] = {"_n_calls": 0, "exploration_rate": 0.0}
"""Attributes of DQN and QRDQN."""


def capture_progress(model: BaseAlgorithm) -> StateDict:
    """Return the counters, the remaining progress, the state of exploration, and the window of finished episodes."""
    names = (*_COUNTERS, _PROGRESS, *(name for name in _EXPLORATION if hasattr(model, name)))
    state: StateDict = {name: getattr(model, name) for name in names}
    for name in WINDOWS:
        window = getattr(model, name)
        state[name] = None if window is None else [_plain_numbers(entry) for entry in window]
    return state


def restore_progress(model: BaseAlgorithm, state: object, least: float = -math.inf) -> None:
    """Continue to count where :func:`capture_progress` was called.

    :param least: smallest remaining progress; Stable-Baselines3 goes below 0 beyond the total
    :raises StateError: a value is missing, unknown or of another type; nothing was changed
    """
    exploration = {name: form for name, form in _EXPLORATION.items() if hasattr(model, name)}
    like: dict[str, Any] = {**dict.fromkeys(_COUNTERS, 0), _PROGRESS: 1.0, **exploration, **dict.fromkeys(WINDOWS)}
    limits: dict[str, Rule] = {
        _PROGRESS: Rule(least, 1.0),
        "exploration_rate": Rule(0.0, 1.0),
        **dict.fromkeys(WINDOWS, FREE),
    }
    fitted = fit(state, like, "progress_state", limits)
    infos, successes = (fitted[name] for name in WINDOWS)
    if infos is not None and not _are_episodes(infos):
        raise misfit("progress_state['ep_info_buffer']", "None or a list of dicts with numbers for 'r' and 'l'", infos)
    if successes is not None and not (isinstance(successes, list) and _have_mean(successes)):
        raise misfit("progress_state['ep_success_buffer']", "None or a list of numbers", successes)
    for name in WINDOWS:
        window = fitted[name]
        fitted[name] = None if window is None else deque(window, maxlen=model._stats_window_size)
    vars(model).update(fitted)


def _are_episodes(infos: object) -> bool:
    """Whether the logger can average returns and lengths."""
    if not isinstance(infos, list) or not all(isinstance(info, dict) for info in infos):
        return False
    return all(_have_mean([info.get(name) for info in infos]) for name in ("r", "l"))


def _have_mean(values: list[Any]) -> bool:
    """Whether they are numbers, or lists of one shape, as arrays are saved."""
    shapes = {_shape(value) for value in values}
    return None not in shapes and len(shapes) < 2


def _shape(value: object) -> tuple[int, ...] | None:
    """Of a number or nested lists; None if it is neither, or the lists have several shapes or nothing in them."""
    if not isinstance(value, list):
        return () if _is_number(value) else None
    shapes = {_shape(each) for each in value}
    first = shapes.pop() if len(shapes) == 1 else None
    return None if first is None else (len(value), *first)


def _is_number(value: object) -> bool:
    return isinstance(value, float) or (isinstance(value, int) and abs(value) <= LARGEST_COUNT)


def storable(progress: StateDict) -> StateDict:
    """A copy of ``progress_state`` whose episodes keep only what a model file holds; one warning names the rest.

    Monitor's ``info_keywords`` let an environment put any object there, and a run must not be lost for one.
    """
    episodes: Any = progress["ep_info_buffer"]
    if episodes is None:
        return progress
    dropped = {key: value for episode in episodes for key, value in episode.items() if not _fits({key: value})}
    if not dropped:
        return progress
    kinds = {key: type(value).__name__ for key, value in dropped.items()}
    warn_caller(
        f"info_keywords of finished episodes hold {kinds}, which no file can: it is left out; note numbers, texts, "
        "arrays or lists of them",
        ResumeWarning,
    )
    kept: Any = [{key: value for key, value in episode.items() if key not in dropped} for episode in episodes]
    return {**progress, "ep_info_buffer": kept}


def _fits(note: dict[Any, Any]) -> bool:
    try:
        plain(note)
    except RefusedError:
        return False
    return True


def _plain_numbers(entry: Any) -> Any:
    if isinstance(entry, dict):
        return {key: _plain_numbers(value) for key, value in entry.items()}
    if isinstance(entry, np.ndarray):
        return entry.tolist()
    return entry.item() if isinstance(entry, np.generic) else entry
