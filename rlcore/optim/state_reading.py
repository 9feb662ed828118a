"""Strict reading of saved states: a value is what it should be, or one error says what it is instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeGuard

import torch
from torch import Tensor

from rlcore.errors import StateError
from rlcore.state.schema import LARGEST_COUNT
from rlcore.types import StateValue


def read_entries(state: object, expected: Iterable[str], what: str) -> dict[str, StateValue]:
    """Return ``state`` if it is a dict with exactly the keys ``expected``, else raise :class:`StateError`."""
    wanted = set(expected)
    if not _is_mapping(state):
        raise StateError(f"{what}: expected a dict with the keys {sorted(wanted)}, got {show(state)}")
    missing, unknown = sorted(wanted - state.keys()), sorted(map(repr, state.keys() - wanted))
    if missing or unknown:
        raise StateError(
            f"{what} does not fit: missing keys {missing}, unknown keys [{', '.join(unknown)}]. "
            "It was written by another version or for another object; nothing was changed."
        )
    return {key: state[key] for key in wanted}


def _is_mapping(value: object) -> TypeGuard[Mapping[object, StateValue]]:
    return isinstance(value, Mapping)


def read_tensor(
    value: StateValue, shape: tuple[int, ...], dtype: torch.dtype | None, what: str, minimum: float | None = None
) -> Tensor:
    """Return a copy of ``value`` if it is a finite tensor of this shape and dtype (None: float32 or float64).

    :raises StateError: it is not, or an element lies below ``minimum``
    """
    allowed = (torch.float32, torch.float64) if dtype is None else (dtype,)
    if not isinstance(value, Tensor) or value.dtype not in allowed or tuple(value.shape) != shape:
        names = " or ".join(str(x) for x in allowed)
        raise StateError(f"{what}: expected a {names} tensor of shape {shape}, got {show(value)}; nothing was changed.")
    if not bool(value.isfinite().all()):
        raise StateError(f"{what} holds NaN or infinity, the state is damaged; nothing was changed.")
    if minimum is not None and bool((value < minimum).any()):
        raise StateError(f"{what} has elements below {minimum}, the state is damaged; nothing was changed.")
    return value.detach().clone()


def show(value: object) -> str:
    """Describe a value of a state for an error message, short whatever it holds."""
    if isinstance(value, Tensor):
        return f"a {value.dtype} tensor of shape {tuple(value.shape)}"
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"


def read_count(value: StateValue, what: str, maximum: int = LARGEST_COUNT) -> int:
    """Return ``value`` if it is an int from 0 to ``maximum``, else raise :class:`StateError`."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= maximum:
        raise StateError(f"{what}: expected an int >= 0 and <= {maximum}, got {show(value)}; nothing was changed.")
    return value
