"""The factories that probes and experiments of this laboratory are given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from figureproject import target


@dataclass(frozen=True)
class Make:
    middle: Callable[[float, float], float] = target.middle
