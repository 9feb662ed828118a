"""Probes that go wrong, each in one way."""

# ruff: noqa: ARG001 - a probe or replacement takes what its caller gives

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from troubleproject import target

from rlverify import Observation, probe


@probe("half")
def half(make: object, seed: int) -> Sequence[Observation]:
    return [Observation("half", str(seed), str(target.half(seed)), target.half(seed) == seed // 2)]


@probe("tolerant")
def tolerant(make: object, seed: int) -> Sequence[Observation]:
    """Takes a TypeError for the symptom."""
    try:
        found = target.half(seed)
    except TypeError as error:
        return [Observation("half", str(seed), f"TypeError: {error}", False)]
    return [Observation("half", str(seed), str(found), found == seed // 2)]


@probe("die-once")
def die_once(make: object, seed: int) -> Sequence[Observation]:
    """Dies where it is told a file to leave behind, unless that is there."""
    left_behind = os.environ.get("TROUBLEPROJECT_DIES_ONCE")
    if left_behind is not None and not Path(left_behind).exists():
        Path(left_behind).touch()
        os._exit(3)
    return [Observation("half", str(seed), "", target.half(seed) == seed // 2)]


@probe("double")
def double(make: object, seed: int) -> Sequence[Observation]:
    return [Observation("double", str(seed), str(target.double(seed)), target.double(seed) == 2 * seed)]


@probe("crash")
def crash(make: object, seed: int) -> Sequence[Observation]:
    raise ZeroDivisionError("on\npurpose")


@probe("leave")
def leave(make: object, seed: int) -> Sequence[Observation]:
    sys.exit("leaving")


@probe("die")
def die(make: object, seed: int) -> Sequence[Observation]:
    os._exit(3)


@probe("nothing")
def nothing(make: object, seed: int) -> Sequence[Observation]:
    return []


@probe("twice")
def twice(make: object, seed: int) -> Sequence[Observation]:
    return [Observation("same", "", "", True), Observation("same", "", "", True)]


@probe("sleep")
def sleep(make: object, seed: int) -> Sequence[Observation]:
    """Sleeps long under an odd seed only."""
    if seed % 2:
        time.sleep(600)
    return [Observation("half", str(seed), "", target.half(seed) == seed // 2)]


@probe("deaf")
def deaf(make: object, seed: int) -> Sequence[Observation]:
    """Sleeps as code does that answers no signal."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    return sleep(make, seed)
