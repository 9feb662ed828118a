"""A plot of the values of a figure."""

from collections.abc import Sequence

from rlverify import Line, Plot, figure_plot


@figure_plot("gains", "FIG-GAIN")
def gains(values: Sequence[float]) -> Plot:
    ordered = tuple(sorted(values))
    return Plot(
        "Gains", "run", "gain", tuple(float(run) for run in range(len(ordered))), (Line("gain", ordered),), "Sorted."
    )
