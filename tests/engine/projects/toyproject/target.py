"""Healthy code for the harness to be tried on."""

from __future__ import annotations

import math
from typing import Any


class Average:
    """A running mean, with one member of every kind that a fault can replace."""

    limit = 10

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0

    def add(self, value: float) -> None:
        """Take one value in."""
        if self.is_usable(value):
            self.count += 1
            self.total += value

    @property
    def mean(self) -> float:
        return self.total / max(self.count, 1)

    @staticmethod
    def is_usable(value: float) -> bool:
        return math.isfinite(value)

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Average:
        made = cls()
        made.count, made.total = state["count"], state["total"]
        return made


class Heir(Average):
    """Inherits everything."""


def clip(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


def unused(value: float) -> float:
    return value
