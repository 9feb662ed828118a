"""Plots illustrate what was measured; no verdict is read from them.

    @plot("noise-to-signal")
    def noise_to_signal() -> Plot:
        ...

The points are committed, rounded, with a digest of the code that gave them, and are measured again when that code has
changed. If the content package has a ``Make`` (see `rlverify.project.probes`), a plot is called with a fresh one.

A plot of figures is drawn from the committed values of one or more figures instead, and measures nothing:

    @figure_plot("recovery", "FIG-02", "FIG-03")
    def recovery(kept: Sequence[float], reset: Sequence[float]) -> Plot:
        ...
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from rlverify.project.registry import Registry
from rlverify.records.plot_points import Plot

PlotMeasurement: TypeAlias = Callable[..., Plot]
AnyMeasurement = TypeVar("AnyMeasurement", bound=PlotMeasurement)

PlotDrawing: TypeAlias = Callable[..., Plot]
AnyDrawing = TypeVar("AnyDrawing", bound=PlotDrawing)


@dataclass(frozen=True)
class FigurePlot:
    """A plot of the values of figures.

    :param claims: ids of the figures
    :param draw: is called with the values of each figure, one for each run
    """

    claims: tuple[str, ...]
    draw: PlotDrawing


PLOTS: Registry[PlotMeasurement] = Registry("plot")
FIGURE_PLOTS: Registry[FigurePlot] = Registry("plot")


def plot(name: str) -> Callable[[AnyMeasurement], AnyMeasurement]:
    """Register the decorated function as what measures the plot ``name``.

    :raises RegistrationError: if another plot has this name
    """

    def register(function: AnyMeasurement) -> AnyMeasurement:
        PLOTS.add(name, function, function.__module__)
        return function

    return register


def figure_plot(name: str, *claims: str) -> Callable[[AnyDrawing], AnyDrawing]:
    """Register the decorated function as what draws the plot ``name`` from the values of figures.

    :param claims: ids of the figures; the function is called with the values of each
    :raises RegistrationError: if another plot of figures has this name
    """

    def register(function: AnyDrawing) -> AnyDrawing:
        FIGURE_PLOTS.add(name, FigurePlot(claims, function), function.__module__)
        return function

    return register
