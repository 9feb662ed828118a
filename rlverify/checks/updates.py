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


def wrong_rates(used: dict[str, list[float]], expected: float) -> dict[str, float]:
    """The groups that stepped with another learning rate, and the first such rate of each."""
    wrong = {place: [rate for rate in rates if not _is_close(rate, expected)] for place, rates in used.items()}
    return {place: rates[0] for place, rates in wrong.items() if rates}


def is_used(used: dict[str, list[float]], expected: float) -> bool:
    """Whether any step of any group has a learning rate."""
    return any(_is_close(rate, expected) for rates in used.values() for rate in rates)


def follows(rates: Sequence[float], half: Sequence[float]) -> bool:
    """Whether each rate that was used for a value is twice the one that was used for half of the value, and not 0."""
    pairs = zip(rates, half, strict=False)
    return len(rates) == len(half) and all(rate > 0 and _is_close(2 * other, rate) for rate, other in pairs)


def _is_close(rate: float, expected: float) -> bool:
    return abs(rate - expected) <= 1e-12 + 1e-6 * abs(expected)
