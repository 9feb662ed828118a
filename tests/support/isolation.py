"""What a live model holds in memory, wherever it hangs: for seeing that two of them share nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from rlcore import DistributionalPPO

OWNED = ("rlcore.", "stable_baselines3.", "sb3_contrib.", "torch.nn.", "torch.optim.", "tests.")
"""Where the classes of objects are from whose attributes belong to a model."""


def storages(*roots: Any) -> set[int]:
    """Addresses of the memory behind every tensor and array that can be reached from ``roots``."""
    return {address for found in _arrays(roots) if (address := _address(found))}


def shared_memory(models: list[DistributionalPPO]) -> list[tuple[int, int]]:
    """Which of the models, by position, share memory with which."""
    owned = [storages(model) for model in models]
    return [(i, j) for i in range(len(owned)) for j in range(i) if owned[i] & owned[j]]


def _arrays(roots: tuple[Any, ...]) -> Iterator[torch.Tensor | np.ndarray[Any, Any]]:
    seen: dict[int, Any] = {}
    waiting = list(roots)
    while waiting:
        found = waiting.pop()
        if id(found) in seen:
            continue
        seen[id(found)] = found
        if isinstance(found, torch.Tensor | np.ndarray):
            yield found
        else:
            waiting.extend(_inside(found))


def _inside(found: Any) -> list[Any]:
    if isinstance(found, Mapping):
        return [*found.keys(), *found.values()]
    if isinstance(found, list | tuple | set | deque):
        return list(found)
    if not isinstance(found, type) and f"{type(found).__module__}.".startswith(OWNED):
        return list(getattr(found, "__dict__", {}).values())
    return []


def _address(found: torch.Tensor | np.ndarray[Any, Any]) -> int:
    """0 for what takes no memory."""
    if isinstance(found, torch.Tensor):
        return found.untyped_storage().data_ptr()
    while isinstance(found.base, np.ndarray):
        found = found.base
    return int(found.ctypes.data) if found.nbytes else 0
