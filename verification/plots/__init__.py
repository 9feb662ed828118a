"""Measurements of what a reader would rather look at; each returns the points of one plot.

    @plot("noise-to-signal")
    def noise_to_signal(make: Make) -> Plot:
        ...

A plot illustrates, and decides nothing: no verdict is read from it. Its points are committed, rounded, beside a digest
of the code that gave them, and are measured again when it has changed. ``Make`` is the one that probes are given.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from verification.errors import ProbeError
from verification.report.plot import Plot

# The argument is the package's own Make.
Measurement: TypeAlias = Callable[[Any], Plot]
AnyMeasurement = TypeVar("AnyMeasurement", bound=Measurement)

_registered: dict[str, Measurement] = {}


def plot(name: str) -> Callable[[AnyMeasurement], AnyMeasurement]:
    """Register the decorated function as what measures ``name``; a second one of the same name raises ProbeError."""

    def register(function: AnyMeasurement) -> AnyMeasurement:
        if name in _registered:
            raise ProbeError(
                f"two plots are named {name!r}: in {_registered[name].__module__} and {function.__module__}"
            )
        _registered[name] = function
        return function

    return register


def load_all(package: str = __name__) -> Mapping[str, Measurement]:
    """Import every module of a package of plots and return those it registered, by name; none without it."""
    if importlib.util.find_spec(package) is None:
        return {}
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        importlib.import_module(module.name)
    return {name: each for name, each in _registered.items() if each.__module__.startswith(f"{package}.")}
