"""Watches the optimizers while a model trains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def rates_used(optimizers: Sequence[Any]) -> dict[str, list[float]]:
    """A dictionary that fills while the optimizers step: their learning rates by group, one for each step."""
    used: dict[str, list[float]] = {}
    for number, optimizer in enumerate(optimizers):

        def note(stepping: Any, _args: Any, _kwargs: Any, number: int = number) -> None:
            for index, group in enumerate(stepping.param_groups):
                used.setdefault(f"optimizers[{number}].param_groups[{index}]", []).append(float(group["lr"]))

        optimizer.register_step_pre_hook(note)
    return used


def wrong_rate(used: dict[str, list[float]], expected: float) -> tuple[str, float] | None:
    """The first group that stepped with another learning rate, and that rate; None if all were right."""
    for place, rates in used.items():
        for rate in rates:
            if abs(rate - expected) > 1e-12 + 1e-6 * abs(expected):
                return place, rate
    return None
