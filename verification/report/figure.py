"""What is claimed of a figure and what was measured, in words."""

from __future__ import annotations

import math

from verification.model import Figure, FigureEvidence


def claimed_in_words(figure: Figure) -> str:
    """The interval that a statement gives."""
    low, high = figure.claimed
    if math.isinf(high):
        return f"more than {low:g} {figure.unit}"
    return f"less than {high:g} {figure.unit}" if math.isinf(low) else f"{low:g} to {high:g} {figure.unit}"


def measured_in_words(measured: FigureEvidence, unit: str) -> str:
    """The mean with its interval, the effect size and the number of runs."""
    effect = "all runs alike" if measured.effect_size is None else f"effect size {measured.effect_size:g}"
    interval = f"95 % interval {measured.low:g} to {measured.high:g}"
    return f"{measured.mean:g} {unit} ({interval}), {effect}, {measured.runs} runs"
