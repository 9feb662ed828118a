"""The global random generators of Python, NumPy and torch: kept for the caller, seeded for a check."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


def seed_globals(seed: int) -> None:
    """Seed all global generators."""
    random.seed(seed)
    np.random.seed(seed)  # the global generator is what many libraries use
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)


def global_state() -> dict[str, Any]:
    """The state of all global generators, by library."""
    state: dict[str, Any] = {"python": random.getstate(), "numpy": np.random.get_state(legacy=False)}
    if "torch" in sys.modules:
        state["torch"] = sys.modules["torch"].get_rng_state().clone()
        if sys.modules["torch"].cuda.is_initialized():
            state["cuda"] = sys.modules["torch"].cuda.get_rng_state_all()
    return state


def set_global_state(state: dict[str, Any]) -> None:
    """Give the global generators a state that `global_state` returned."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    if "torch" in state:
        sys.modules["torch"].set_rng_state(state["torch"])
    if "cuda" in state:
        sys.modules["torch"].cuda.set_rng_state_all(state["cuda"])


@contextmanager
def kept() -> Iterator[None]:
    """The global generators have the same state after the block as before it."""
    state = global_state()
    try:
        yield
    finally:
        set_global_state(state)
