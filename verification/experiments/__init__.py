"""Experiments: paired runs that measure what a document puts a figure on.

    @experiment("recovery-after-exploit")
    def recovery_after_exploit(make: Make, seed: int) -> Mapping[str, float]:
        ...

One call is one paired run: everything drawn at random follows from the seed, and what is returned compares arms that
started alike. The quantities are returned by name, each a finite number in the unit of the claim that names it; several
claims may name quantities of one experiment. ``Make`` is the one that probes are given.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from verification.errors import ProbeError

# The first argument is the package's own Make.
Experiment: TypeAlias = Callable[[Any, int], Mapping[str, float]]
AnyExperiment = TypeVar("AnyExperiment", bound=Experiment)

_registered: dict[str, Experiment] = {}


def experiment(name: str) -> Callable[[AnyExperiment], AnyExperiment]:
    """Register the decorated function as the experiment ``name``; a second one of the same name raises ProbeError."""

    def register(function: AnyExperiment) -> AnyExperiment:
        if name in _registered:
            raise ProbeError(
                f"two experiments are named {name!r}: in {_registered[name].__module__} and {function.__module__}"
            )
        _registered[name] = function
        return function

    return register


def load_all(package: str = __name__) -> Mapping[str, Experiment]:
    """Import every module of a package of experiments and return those it registered, by name; none without it."""
    if importlib.util.find_spec(package) is None:
        return {}
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        importlib.import_module(module.name)
    return {name: each for name, each in _registered.items() if each.__module__.startswith(f"{package}.")}
