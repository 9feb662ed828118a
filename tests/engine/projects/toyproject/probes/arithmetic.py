"""Probes of the toy code."""

# ruff: noqa: ARG001 - a probe or replacement takes what its caller gives

from __future__ import annotations

import random
from collections.abc import Sequence

from toyproject import target
from toyproject.probes.make import Make

from rlverify import Observation, probe


@probe("restore")
def restore(make: Make, seed: int) -> Sequence[Observation]:
    before = make.average()
    for value in random.Random(seed).choices(range(1, 10), k=3):
        before.add(value)
    after = type(before).restored({"count": before.count, "total": before.total})
    return [
        Observation("count", str(before.count), str(after.count), before.count == after.count),
        Observation("total", str(before.total), str(after.total), before.total == after.total),
        Observation("mean", f"{before.mean!r}", f"{after.mean!r}", before.mean == after.mean, repeats=False),
    ]


@probe("clip")
def clip(make: Make, seed: int) -> Sequence[Observation]:
    print("a probe may print")  # noqa: T201 - as some do
    values = {-5: 0, 0: 0, 5: 3}
    return [
        Observation(f"clip({value}, 0, 3)", str(value), str(found), found == expected)
        for value, expected in values.items()
        for found in [target.clip(value, 0, 3)]
    ]


@probe("count")
def count(make: Make, seed: int) -> Sequence[Observation]:
    average = make.average()
    average.add(seed)
    return [Observation("count | values", "0", str(average.count), average.count == 1)]


@probe("mean-is-largest")
def mean_is_largest(make: Make, seed: int) -> Sequence[Observation]:
    average = make.average()
    for value in (1, 2):
        average.add(value)
    return [Observation("mean of 1 and 2", "", str(average.mean), average.mean == 2)]
