"""The table of effects: how much a failed check changes training, in rows of text."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import Final

from rlverify.field.field_records import Effect

EFFECT_OF: Final = {
    "resume_is_exact": "A model trains, is saved, and trains on, which is the run without the defect. The run with it "
    "starts from the files of `save()`, `save_replay_buffer()` and `VecNormalize.save()`.",
    "set_parameters_copies": "A receiver gets the parameters of a source; then the source trains, and then the "
    "receiver. Without the defect it gets copies; with it, what `get_parameters()` returns.",
}
HEADER: Final = (
    "algorithm",
    "steps",
    "first step that differs",
    "distance",
    "return without the defect",
    "return with it",
)


def effect_rows(effects: Sequence[tuple[str, Effect]]) -> list[tuple[str, ...]]:
    """A row of cells for each algorithm, below `HEADER`."""
    return [
        (
            name,
            str(effect.steps),
            ", ".join("none" if each is None else str(each) for each in effect.first_difference),
            _span(effect.distance, 2),
            _span(effect.returns, 0),
            _span(effect.returns_with, 0),
        )
        for name, effect in effects
    ]


def _span(values: Sequence[float], digits: int) -> str:
    """The mean of some values, with the smallest and the largest."""
    return f"{mean(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"
