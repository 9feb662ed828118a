"""The points of a plot; frozen records."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

MOST_LINES: Final = 5
"""As many strokes as a reader can tell apart in grey."""


@dataclass(frozen=True)
class Line:
    """One line of a plot.

    :param values: one for each position; None where there is none, which interrupts the line
    """

    label: str
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class Plot:
    """What a plot shows.

    :param positions: ascending; the same for all lines
    :param note: what was measured, and how, in a sentence or two; shown next to the plot
    :param log_x: whether the horizontal axis is logarithmic; then all positions are above 0
    :param log_y: whether the vertical axis is; then all values are
    """

    title: str
    x_label: str
    y_label: str
    positions: tuple[float, ...]
    lines: tuple[Line, ...]
    note: str
    log_x: bool = False
    log_y: bool = False

    def __post_init__(self) -> None:
        if not self.lines or len(self.lines) > MOST_LINES:
            raise ValueError(f"{self.title!r} has {len(self.lines)} lines; draw 1 to {MOST_LINES}")
        values = [value for line in self.lines for value in line.values if value is not None]
        if any(len(line.values) != len(self.positions) for line in self.lines) or not values:
            raise ValueError(f"{self.title!r}: every line needs one value or None for each of {len(self.positions)}")
        for logarithmic, numbers in ((self.log_x, self.positions), (self.log_y, values)):
            if not all(math.isfinite(each) and (each > 0.0 or not logarithmic) for each in numbers):
                raise ValueError(f"{self.title!r}: a number is not finite, or not above 0 on a logarithmic axis")
