"""Probes: experiments that look for a symptom without knowing which variant of the code they measure.

    @probe("adam-keeps-its-learning-rate")
    def learning_rate(make: Make, seed: int) -> Sequence[Observation]:
        ...

The package of the probes has a module ``make`` with a class ``Make``, called without arguments for each run.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from verification.errors import ProbeError
from verification.model import Observation

# The first argument is the package's own Make.
Probe: TypeAlias = Callable[[Any, int], Sequence[Observation]]
AnyProbe = TypeVar("AnyProbe", bound=Probe)

_registered: dict[str, Probe] = {}


def probe(name: str) -> Callable[[AnyProbe], AnyProbe]:
    """Register the decorated function as the probe ``name``; a second one of the same name raises ProbeError."""

    def register(function: AnyProbe) -> AnyProbe:
        if name in _registered:
            raise ProbeError(
                f"two probes are named {name!r}: in {_registered[name].__module__} and {function.__module__}"
            )
        _registered[name] = function
        return function

    return register


def load_all(package: str = __name__) -> Mapping[str, Probe]:
    """Import every module of a package of probes and return those it registered, by name."""
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        importlib.import_module(module.name)
    return {name: each for name, each in _registered.items() if each.__module__.startswith(f"{package}.")}
