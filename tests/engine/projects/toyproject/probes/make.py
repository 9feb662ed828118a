"""The factories that toy probes are given."""

from __future__ import annotations

from dataclasses import dataclass

from toyproject import target


@dataclass(frozen=True)
class Make:
    def average(self) -> target.Average:
        return target.Average()
