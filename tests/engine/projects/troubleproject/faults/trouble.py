"""Faults that cannot do their work."""

# ruff: noqa: ARG001 - a probe or replacement takes what its caller gives

from __future__ import annotations

from rlverify import fault


@fault("stale", target="troubleproject.target:half", pins="0000000000000000")
def stale(value: int) -> int:
    return value


@fault("unreached", target="troubleproject.target:unused", pins="620d01c801d37c55")
def unreached(value: int) -> int:
    return -value


@fault("sometimes", target="troubleproject.target:half", pins="e8f77d6ad86ba90e")
def sometimes(value: int) -> int:
    return value // 2 + value % 2


@fault("double-of-nothing", target="troubleproject.target:double", pins="6323ddd8d044a771")
def double_of_nothing(value: int) -> int:
    return 0


@fault("crashing", target="troubleproject.target:half", pins="e8f77d6ad86ba90e")
def crashing(value: int) -> int:
    return len(value)  # type: ignore[arg-type]  # a mistake in the fault, not the bug that it should put back
