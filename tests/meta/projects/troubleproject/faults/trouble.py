"""Faults that cannot do their work."""

# ruff: noqa: ARG001 - a probe or replacement takes what its caller gives

from __future__ import annotations

from rlverify import fault


@fault("stale", target="troubleproject.target:half", pins="0000000000000000")
def stale(value: int) -> int:
    return value


@fault("unreached", target="troubleproject.target:unused", pins="7829c1f1984de433")
def unreached(value: int) -> int:
    return -value


@fault("sometimes", target="troubleproject.target:half", pins="45c24fd7116c2891")
def sometimes(value: int) -> int:
    return value // 2 + value % 2


@fault("double-of-nothing", target="troubleproject.target:double", pins="55c514beb75c472e")
def double_of_nothing(value: int) -> int:
    return 0


@fault("crashing", target="troubleproject.target:half", pins="45c24fd7116c2891")
def crashing(value: int) -> int:
    return len(value)  # type: ignore[arg-type]  # a mistake in the fault, not the bug that it should put back
