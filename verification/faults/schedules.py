"""Known bugs of schedules."""

from __future__ import annotations

from typing import Any

from rlverify import fault, healthy

DEFAULT_FLOOR = 1e-3


@fault("fnd-23-default-floor", target="rlcore.ppo.adaptive:EntropySchedule._floored", pins="ca7492efba2a3d95")
def default_floor(self: Any, coefficient: float) -> float:
    """Apply a floor even if none is set."""
    floored: float = healthy("fnd-23-default-floor")(self, coefficient)
    return max(floored, DEFAULT_FLOOR)


@fault("ppo-06-no-floor", target="rlcore.ppo.adaptive:EntropySchedule._floored", pins="ca7492efba2a3d95")
def no_floor(self: Any, coefficient: float) -> float:  # noqa: ARG001
    """Let the coefficient decay below its floor."""
    return coefficient


@fault(
    "ppo-06-floor-after-the-boost",
    target="rlcore.ppo.adaptive:EntropySchedule.coefficient",
    pins="8ae47e9321daf7e0",
)
def floor_after_the_boost(self: Any, remaining: float) -> float:
    """Apply the floor after the boost instead of before it."""
    floored: float = self._floored(self._decayed(remaining) * self._boost())
    return floored


@fault("ppo-06-floored-twice", target="rlcore.ppo.adaptive:EntropySchedule.coefficient", pins="8ae47e9321daf7e0")
def floored_twice(self: Any, remaining: float) -> float:
    """Apply the floor before and after the boost, as the document describes."""
    floored: float = self._floored(healthy("ppo-06-floored-twice")(self, remaining))
    return floored
