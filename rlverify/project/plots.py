"""Plots illustrate what was measured; no verdict is read from them.

    @plot("noise-to-signal")
    def noise_to_signal() -> Plot:
        ...

The points are committed, rounded, with a digest of the code that gave them, and are measured again when that code has
changed. If the content package has a ``Make`` (see `rlverify.project.probes`), a plot is called with a fresh one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from rlverify.project.registry import Registry
from rlverify.records.plot_points import Plot

PlotMeasurement: TypeAlias = Callable[..., Plot]
AnyMeasurement = TypeVar("AnyMeasurement", bound=PlotMeasurement)

PLOTS: Registry[PlotMeasurement] = Registry("plot")


def plot(name: str) -> Callable[[AnyMeasurement], AnyMeasurement]:
    """Register the decorated function as what measures the plot ``name``.

    :raises RegistrationError: if another plot has this name
    """

    def register(function: AnyMeasurement) -> AnyMeasurement:
        PLOTS.add(name, function, function.__module__)
        return function

    return register
