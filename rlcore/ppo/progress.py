"""How far training has come: counters, and what Monitor noted of finished episodes."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from rlcore.checkpoint.refusal import RefusedError
from rlcore.checkpoint.values import plain
from rlcore.errors import ResumeWarning
from rlcore.ppo.configured import ConfiguredPPO
from rlcore.state.schema import LARGEST_COUNT, misfit, read_count, read_number, read_record
from rlcore.types import StateDict
from rlcore.warn import warn_caller

COUNTERS = ("num_timesteps", "_total_timesteps", "_episode_num", "_n_updates")
PROGRESS = "_current_progress_remaining"
WINDOWS = ("ep_info_buffer", "ep_success_buffer")


class ProgressState:
    """Counters, and the window of finished episodes that the logger averages."""

    def __init__(self, model: ConfiguredPPO) -> None:
        self.model = model

    def capture(self) -> StateDict | None:
        state: StateDict = {name: getattr(self.model, name) for name in (*COUNTERS, PROGRESS)}
        for name in WINDOWS:
            window = getattr(self.model, name)
            state[name] = None if window is None else [_plain_numbers(entry) for entry in window]
        return state

    def restore(self, state: StateDict) -> None:
        check_progress(state)
        for name in (*COUNTERS, PROGRESS):
            setattr(self.model, name, state[name])
        for name in WINDOWS:
            window: Any = state[name]
            setattr(self.model, name, None if window is None else deque(window, maxlen=self.model.stats_window_size))


def check_progress(state: StateDict) -> None:
    """Counters must be counts, the remaining progress a number from 0 to 1, the windows lists or None."""
    record = read_record(state, "progress_state", (*COUNTERS, PROGRESS, *WINDOWS))
    for name in COUNTERS:
        read_count(record[name], f"progress_state[{name!r}]")
    read_number(record[PROGRESS], f"progress_state[{PROGRESS!r}]", 0.0, 1.0)
    infos, successes = (record[name] for name in WINDOWS)
    if infos is not None and not _are_episodes(infos):
        raise misfit("progress_state['ep_info_buffer']", "None or a list of dicts with numbers for 'r' and 'l'", infos)
    if successes is not None and not (isinstance(successes, list) and _have_mean(successes)):
        raise misfit("progress_state['ep_success_buffer']", "None or a list of numbers", successes)


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
