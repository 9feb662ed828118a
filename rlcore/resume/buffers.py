"""The replay buffer as plain values: the transitions that are in it, and where the next one goes."""

from __future__ import annotations

from typing import Any

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.her import HerReplayBuffer

from rlcore.checkpoint.storage import DEFAULT_MAX_BYTES
from rlcore.errors import StateError
from rlcore.resume.settings import REPLAY_BUFFERS, ROLLOUT_BUFFERS
from rlcore.state.position import from_state, to_state
from rlcore.state.schema import misfit, read_count, read_record
from rlcore.types import StateDict

_FIELDS = ("pos", "full", "arrays")


def buffer_obstacle(model: BaseAlgorithm) -> str | None:
    """Return why a buffer of ``model`` cannot be saved, or None if it can."""
    rollout_class = getattr(model, "rollout_buffer_class", None)
    if rollout_class is not None and rollout_class not in ROLLOUT_BUFFERS:
        return f"the rollout buffer {rollout_class.__name__} may keep more than a rollout; use Stable-Baselines3's own"
    buffer = getattr(model, "replay_buffer", None)
    if buffer is None:
        return None
    if isinstance(buffer, HerReplayBuffer):
        return "HerReplayBuffer computes rewards with the environment and keeps episodes apart, which is not covered"
    if type(buffer) not in REPLAY_BUFFERS:
        return f"the replay buffer {type(buffer).__name__} may keep more than transitions; use Stable-Baselines3's own"
    size = sum(array.nbytes for array in _all_arrays(buffer))
    if size > DEFAULT_MAX_BYTES:
        return (
            f"the replay buffer holds {size} bytes of transitions, and a file at most {DEFAULT_MAX_BYTES}; use a "
            f"smaller buffer_size than {model.buffer_size}"  # type: ignore[attr-defined]
        )
    return None


def capture_buffer(model: BaseAlgorithm) -> StateDict | None:
    """Return the filled rows of every array, each of shape (rows, n_envs, ...); None without a replay buffer."""
    buffer = getattr(model, "replay_buffer", None)
    if buffer is None:
        return None
    return {
        "pos": int(buffer.pos),
        "full": bool(buffer.full),
        "arrays": {name: to_state(value) for name, value in _filled(buffer).items()},
    }


def restore_buffer(model: BaseAlgorithm, state: StateDict | None) -> None:
    """Fill the replay buffer of ``model`` with what :func:`capture_buffer` returned.

    :raises StateError: ``state`` is of another buffer; nothing was changed
    """
    buffer = getattr(model, "replay_buffer", None)
    if buffer is None or state is None:
        if buffer is not state:
            raise StateError("only one of the file and the model has a replay buffer; the file is damaged")
        return
    record = read_record(state, "replay_buffer", _FIELDS)
    pos = read_count(record["pos"], "replay_buffer['pos']", buffer.buffer_size - 1)
    if not isinstance(record["full"], bool):
        raise misfit("replay_buffer['full']", "True or False", record["full"])
    rows = _rows(buffer, pos, record["full"])
    places = {name: _first(array, rows) for name, array in _arrays(buffer).items()}
    saved = read_record(record["arrays"], "replay_buffer['arrays']", places)
    values = {name: from_state(saved[name]) for name in places}
    for name, place in places.items():
        _require_like(values[name], place, name)
    for name, place in places.items():
        _copy(values[name], place)
    buffer.pos, buffer.full = pos, record["full"]


def _rows(buffer: ReplayBuffer, pos: int, full: bool) -> int:
    """Return how many rows hold transitions; with ``optimize_memory_usage`` one more holds the next observation."""
    return buffer.buffer_size if full else min(pos + int(buffer.optimize_memory_usage), buffer.buffer_size)


def _arrays(buffer: ReplayBuffer) -> dict[str, Any]:
    names = ["observations", "actions", "rewards", "dones", "timeouts"]
    if hasattr(buffer, "next_observations"):
        names.append("next_observations")
    return {name: getattr(buffer, name) for name in names}


def _filled(buffer: ReplayBuffer) -> dict[str, Any]:
    rows = _rows(buffer, buffer.pos, buffer.full)
    return {name: _first(array, rows) for name, array in _arrays(buffer).items()}


def _all_arrays(buffer: ReplayBuffer) -> list[np.ndarray[Any, Any]]:
    filled = _filled(buffer).values()
    return [array for value in filled for array in (value.values() if isinstance(value, dict) else [value])]


def _first(value: Any, rows: int) -> Any:
    """Return views of the first rows of an array, or of each array of a dict."""
    return {key: array[:rows] for key, array in value.items()} if isinstance(value, dict) else value[:rows]


def _require_like(value: Any, place: Any, name: str) -> None:
    if isinstance(place, dict):
        for key, part in read_record(value, f"replay_buffer[{name!r}]", place).items():
            _require_like(part, place[key], name)
    elif not isinstance(value, np.ndarray) or (value.shape, value.dtype) != (place.shape, place.dtype):
        raise misfit(f"replay_buffer[{name!r}]", f"an array of {place.dtype} with shape {place.shape}", value)


def _copy(value: Any, place: Any) -> None:
    if isinstance(place, dict):
        for key, part in place.items():
            part[...] = value[key]
    else:
        place[...] = value
