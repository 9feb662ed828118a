"""Makes models train in less time: with smaller settings where those only cost time."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from rlverify.checks.adapters.adapter import Adapter
from rlverify.checks.state.random_state import seed_globals
from rlverify.records.attempts import Crash, attempt

SEED = 0
"""Of the global generators before a model is made again."""


def what_is_smaller(adapter: Adapter, model: Any) -> tuple[bool, str]:
    """Whether a model can be made with smaller settings, and in a line which ones, or why not; empty for none."""
    settings = attempt(lambda: adapter.smaller(model))
    if isinstance(settings, Crash) or not settings:
        return False, ""
    made = attempt(lambda: _made(adapter, model, settings))
    reason = str(made.error) if isinstance(made, Crash) else _left_over(adapter, made)
    if not reason:
        return True, f"shrunk: {_listed(model, settings)}"
    return False, f"not shrunk, as {reason}; a factory with these sizes is faster: {_listed(model, settings)}"


def _left_over(adapter: Adapter, made: Any) -> str:
    """Why smaller settings had no effect; empty if they had."""
    left = ", ".join(adapter.smaller(made))
    return f"{type(made).__name__} does not use {left}" if left else ""


def smaller_model(adapter: Adapter, factory: Callable[[], Any]) -> Any:
    """What a factory makes, with smaller settings."""
    model = factory()
    return _made(adapter, model, adapter.smaller(model))


def _made(adapter: Adapter, model: Any, settings: Mapping[str, Any]) -> Any:
    seed_globals(SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the factory's own were shown
        return adapter.with_settings(model, **settings)


def _listed(model: Any, settings: Mapping[str, Any]) -> str:
    """``n_steps 2048 -> 64, environments 8 -> 2``."""
    pairs = [(name, getattr(model, name, "unknown"), value) for name, value in settings.items()]
    return ", ".join(
        f"environments {old.num_envs} -> {new.num_envs}" if hasattr(new, "num_envs") else f"{name} {old} -> {new}"
        for name, old, new in pairs
    )
