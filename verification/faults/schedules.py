"""Known bugs of schedules."""

from __future__ import annotations

from typing import Any

from verification.faults import fault, healthy

DEFAULT_FLOOR = 1e-3


@fault("fnd-23-default-floor", target="rlcore.ppo.entropy:EntropySchedule._floored", pins="f61588272d73e192")
def default_floor(self: Any, coefficient: float) -> float:
    """Nobody asked for a floor, and there is one."""
    floored: float = healthy("fnd-23-default-floor")(self, coefficient)
    return max(floored, DEFAULT_FLOOR)
