"""The one reader of saved state: a value is what the schema says, or one StateError names place, value and remedy.

Every reader takes the value and where it stands (``vgs_state['step_count']``), and returns the value checked.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast

import torch
from torch import Tensor

from rlcore.errors import StateError
from rlcore.types import StateDict, StateValue

LARGEST_COUNT = 2**53
"""Largest counter of a saved state: a float holds every count up to it exactly."""
LARGEST_FLOAT = sys.float_info.max
FLOATS = (torch.float32, torch.float64)
REMEDY = "it is damaged, or was saved by another version or of another object. Nothing was changed."


def describe(value: object) -> str:
    """A short text for a value of a saved state: tensors by dtype and shape, the rest shown and cut."""
    if isinstance(value, Tensor):
        return f"a tensor of {value.dtype} with shape {tuple(value.shape)}"
    if isinstance(value, list | dict):
        return f"a {type(value).__name__} of {len(value)} entries"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def misfit(where: str, wanted: str, found: object) -> StateError:
    """The error for a value of the wrong type, shape or range."""
    return StateError(f"{where} must be {wanted}, and is {describe(found)}; {REMEDY}")


def read_dict(value: object, where: str) -> StateDict:
    """A dict with any keys."""
    if not isinstance(value, dict):
        raise misfit(where, "a dict", value)
    return value


def read_record(value: object, where: str, keys: Iterable[str]) -> dict[str, Any]:
    """A mapping with exactly these keys.

    :raises StateError: naming what is missing and what is not known
    """
    wanted: set[Any] = set(keys)
    if not isinstance(value, Mapping):
        raise misfit(where, f"a dict with the keys {_few(wanted)}", value)
    if set(value) != wanted:
        missing, unknown = _few(wanted - set(value)), _few(set(value) - wanted)
        raise StateError(f"{where} does not fit: missing keys {missing}, unknown keys {unknown}; {REMEDY}")
    return dict(value)


def read_list(value: object, where: str, length: int | None = None) -> list[StateValue]:
    """A list, of ``length`` entries where it is given."""
    if not isinstance(value, list) or length not in (None, len(value)):
        raise misfit(where, "a list" if length is None else f"a list of {length} entries", value)
    return value


def read_count(value: object, where: str, most: float = LARGEST_COUNT, least: int = 0) -> int:
    """An int from ``least`` to ``most``, which may be infinite; no bool."""
    if type(value) is not int or not least <= value <= most:
        limits = f"of at least {least}" if most == math.inf else f"from {least} to {most}"
        raise misfit(where, f"an integer {limits}", value)
    return value


def read_number(value: object, where: str, least: float = -math.inf, most: float = math.inf) -> float:
    """A finite int or float from ``least`` to ``most``, as a float; no bool."""
    number = cast("float", value)
    if type(value) not in (int, float) or not least <= number <= most or abs(number) > LARGEST_FLOAT:
        limits = "" if (least, most) == (-math.inf, math.inf) else f" from {least:g} to {most:g}"
        raise misfit(where, f"a finite number{limits}", value)
    return float(number)


def read_tensor(
    value: object,
    where: str,
    shape: tuple[int, ...],
    dtypes: Collection[torch.dtype] | None = FLOATS,
    *,
    least: float = -math.inf,
    finite: bool = True,
) -> Tensor:
    """A tensor of this shape, shared with the state.

    :param dtypes: those allowed; None for any floating point
    :param least: what no element may lie below
    :raises StateError: for another shape or dtype, and for unusable elements
    """
    right = isinstance(value, Tensor) and tuple(value.shape) == shape
    if not right or not _has_dtype(cast("Tensor", value), dtypes):
        kinds = "floating point numbers" if dtypes is None else " or ".join(map(str, dtypes))
        raise misfit(where, f"a tensor of {kinds} with shape {shape}", value)
    tensor = cast("Tensor", value)
    if finite and not bool(tensor.isfinite().all()):
        raise StateError(f"{where} holds NaN or infinity; {REMEDY}")
    if least != -math.inf and bool((tensor < least).any()):
        raise StateError(f"{where} holds a number below {least:g}; {REMEDY}")
    return tensor


def _has_dtype(tensor: Tensor, dtypes: Collection[torch.dtype] | None) -> bool:
    return tensor.is_floating_point() if dtypes is None else tensor.dtype in dtypes


def _few(names: Iterable[object]) -> str:
    shown = sorted(map(str, names))
    return f"{shown[:3]}{' ...' if len(shown) > 3 else ''}"
