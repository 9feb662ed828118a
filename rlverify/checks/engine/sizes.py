"""Makes models train in less time: with smaller settings where those only cost time."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlverify.checks.adapters.adapter import Adapter
from rlverify.checks.state.leaves import is_plain
from rlverify.checks.state.random_state import seed_globals
from rlverify.checks.state.trained import named_parameters
from rlverify.checks.state.tree import digests, unequal
from rlverify.records.attempts import Crash, attempt

SEED = 0
"""Of the global generators before a model is made again."""


def what_is_smaller(adapter: Adapter, model: Any) -> tuple[bool, str]:
    """Whether a model can be made with smaller settings, and in a line which ones, or why not; empty for none."""
    settings = attempt(lambda: adapter.smaller(model))
    if isinstance(settings, Crash) or not settings:
        return False, ""
    made = attempt(lambda: _made(adapter, model, settings))
    lost = str(made.error) if isinstance(made, Crash) else _lost(adapter, model, made, settings)
    if not lost:
        return True, f"shrunk: {_listed(model, settings)}"
    reason = f"{type(model).__name__} cannot be made again with its own arguments ({lost})"
    return False, f"not shrunk: {reason}; make the factory faster: {_listed(model, settings)}"


def _lost(adapter: Adapter, model: Any, made: Any, settings: Mapping[str, Any]) -> str:
    """What else differs between a model and the smaller one, or has no effect; empty for nothing."""
    left = adapter.smaller(made)
    if left:
        return f"{next(iter(left))} has no effect"
    before, after = _visible(adapter, model), _visible(adapter, made)
    of_sizes = {*settings, *(["n_envs"] if "env" in settings else [])}
    differ = [name for name in unequal(before, after) if name not in of_sizes]
    return f"{differ[0]} differs" if differ else ""


def _visible(adapter: Adapter, model: Any) -> dict[str, str]:
    """The plain attributes of a model, the types of the others, and its parameters."""
    own = {name: value.item() if isinstance(value, np.generic) else value for name, value in vars(model).items()}
    found = {name: repr(value) if is_plain(value) else type(value).__name__ for name, value in own.items()}
    parameters = named_parameters(list(adapter.modules(model)))
    return {**found, **{f"parameter {name}": repr(digests(each)) for name, each in parameters.items()}}


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
    pairs: list[tuple[str, Any, Any]] = [(name, getattr(model, name, "?"), value) for name, value in settings.items()]
    return ", ".join(
        f"environments {old.num_envs} -> {new.num_envs}" if hasattr(new, "num_envs") else f"{name} {old} -> {new}"
        for name, old, new in pairs
    )
