"""What is claimed of a figure and what was measured, in words."""

from __future__ import annotations

import math
from typing import Final

from rlverify.records.claims import Figure
from rlverify.records.measured import FigureEvidence

LARGE: Final = 1000.0
"""An effect size from here on says that the runs hardly differ, and is given in full rather than as a power of ten."""


def claimed_in_words(figure: Figure) -> str:
    """The interval that decides."""
    low, high = figure.claimed
    if math.isinf(high):
        return f"more than {low:g} {figure.unit}"
    return f"less than {high:g} {figure.unit}" if math.isinf(low) else f"{low:g} to {high:g} {figure.unit}"


def origin(figure: Figure) -> str:
    """Whose that interval is."""
    return "said" if figure.document_gives == "interval" else "criterion, ours"


def origin_and_claimed(figure: Figure) -> str:
    """The interval that decides, and whose it is."""
    return f"{origin(figure)}: {claimed_in_words(figure)}"


def effect_in_words(effect: float | None) -> str:
    """An effect size, and what a large one says."""
    if effect is None:
        return "none: all runs are the same"
    return f"{effect:,.0f} (the runs hardly differ)" if abs(effect) >= LARGE else f"{effect:g}"


def measured_in_words(measured: FigureEvidence, unit: str) -> str:
    """The mean with its interval, the effect size and the number of runs."""
    size = measured.effect_size
    effect = "all runs alike" if size is None else f"effect size {effect_in_words(size)}"
    interval = f"95 % interval {measured.low:g} to {measured.high:g}"
    return f"{measured.mean:g} {unit} ({interval}), {effect}, {measured.runs} runs"
