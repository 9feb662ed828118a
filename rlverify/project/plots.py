"""Plots of the committed values of figures; no verdict is read from them, and they measure nothing.

@figure_plot("recovery", "FIG-02", "FIG-03")
def recovery(kept: Sequence[float], reset: Sequence[float]) -> Plot:
    ...
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from rlverify.project.registry import Registry
from rlverify.records.plot_points import Plot

FOLDER: Final = "plots"
"""Folder of the pictures, in that of the reports."""
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


FIGURE_PLOTS: Registry[FigurePlot] = Registry("plot")


def figure_plot(name: str, *claims: str) -> Callable[[AnyDrawing], AnyDrawing]:
    """Register the decorated function as what draws the plot ``name`` from the values of figures.

    :param claims: ids of the figures; the function is called with the values of each
    :raises RegistrationError: if another plot of figures has this name
    """

    def register(function: AnyDrawing) -> AnyDrawing:
        FIGURE_PLOTS.add(name, FigurePlot(claims, function), function.__module__)
        return function

    return register
