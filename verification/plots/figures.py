"""Plots of the values of figures."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

from rlverify import Line, Plot, figure_plot

LAST: Final = 832
"""Optimizer steps that are observed: 52 updates. A run with this value did not adapt within them."""
EVERY: Final = 16


@figure_plot("recovery-after-exploit", "FIG-02", "FIG-03")
def recovery_after_exploit(kept: Sequence[float], reset: Sequence[float]) -> Plot:
    """The part of the runs in which statistics have adapted, by optimizer steps after the exploit."""
    positions = tuple(float(step) for step in range(0, LAST, EVERY))
    half = [median(steps) for steps in (kept, reset)]
    return Plot(
        title=f"Half of the runs adapt within {half[0]:g} steps if statistics are kept, {half[1]:g} if reset",
        x_label="optimizer steps after the exploit",
        y_label="runs that have adapted, in percent",
        positions=positions,
        lines=(
            Line("own statistics kept (FIG-02)", adapted(kept, positions)),
            Line("statistics reset (FIG-03)", adapted(reset, positions)),
        ),
        note=(
            f"{len(kept)} exploits, the runs of FIG-02 and FIG-03. Statistics have adapted when their factor stays "
            f"within 5 % of that of the source's statistics for an update. Each run is observed for {LAST} steps; "
            f"{percent(kept):.0f} % (kept) and {percent(reset):.0f} % (reset) do not adapt within them."
        ),
    )


def adapted(steps: Sequence[float], positions: Sequence[float]) -> tuple[float, ...]:
    """The part of the runs, in percent, that took at most as many steps as each position."""
    return tuple(round(100.0 * sum(each <= position for each in steps) / len(steps), 1) for position in positions)


def percent(steps: Sequence[float]) -> float:
    """The part of the runs, in percent, that did not adapt while they were observed."""
    return 100.0 * sum(each >= LAST for each in steps) / len(steps)
