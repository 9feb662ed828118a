"""Faults of the toy code."""

# ruff: noqa: ARG001 - a probe or replacement takes what its caller gives

from __future__ import annotations

from typing import Any

from toyproject.target import Average

from rlverify import add_fault, fault, get_fault, healthy, null_fault_of, unclaimed


@fault("restored-forgets", target="toyproject.target:Average.restored", pins="3608b0c30d56493a", area="state")
def restored_forgets(cls: type[Average], state: dict[str, Any]) -> Average:
    return cls()


@fault("restored-keeps-total", target="toyproject.target:Average.restored", pins="3608b0c30d56493a", area="state")
def restored_keeps_total(cls: type[Average], state: dict[str, Any]) -> Average:
    made = cls()
    made.total = state["total"]
    return made


@fault("clip-one-sided", target="toyproject.target:clip", pins="25484b5252819a98")
def clip_one_sided(value: float, low: float, high: float) -> float:
    return min(value, high)


@fault("clip-other-order", target="toyproject.target:clip", pins="25484b5252819a98")
def clip_other_order(value: float, low: float, high: float) -> float:
    return max(min(value, high), low)


@fault("add-twice", target="toyproject.target:Average.add", pins="aeefeb38970c1d24")
def add_twice(self: Average, value: float) -> None:
    healthy("add-twice")(self, value)
    healthy("add-twice")(self, value)


@unclaimed("mean-of-nothing", target="toyproject.target:Average.mean", pins="045669d4b8da2bae")
def mean_of_nothing(self: Average) -> float:
    return 0.0


add_fault(null_fault_of(get_fault("add-twice")))
