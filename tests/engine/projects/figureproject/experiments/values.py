"""Experiments whose outcome is known, and which go wrong where the environment says so.

Each execution is a line of the file FIGURELAB_LOG: experiment, seed, process. A run of seed FIGURELAB_CRASH raises, one
of FIGURELAB_DIE ends its process, and those from FIGURELAB_HOLD_FROM on wait while the file FIGURELAB_HOLD is there.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from figureproject.probes.make import Make

from rlverify import experiment


@experiment("transfer")
def transfer(make: Make, seed: int) -> Mapping[str, float]:
    _behave("transfer", seed)
    print("an experiment may print")  # noqa: T201 - as some do
    noise = random.Random(seed).uniform(-1, 1)
    return {"gain": make.middle(19, 21) + noise, "spike": 1 + noise / 2, "drift": 15 + 5 * noise}


@experiment("same-arms")
def same_arms(make: Make, seed: int) -> Mapping[str, float]:
    _behave("same-arms", seed)
    return {"improvement": make.middle(-1, 1) + seed * 1e-17}


def _behave(name: str, seed: int) -> None:
    given = {key: os.environ.get(f"FIGURELAB_{key}") for key in ("LOG", "CRASH", "DIE", "HOLD", "HOLD_FROM")}
    if given["LOG"]:
        with Path(given["LOG"]).open("a") as file:
            file.write(f"{name} {seed} {os.getpid()}\n")
    if given["CRASH"] == str(seed):
        raise ZeroDivisionError("on purpose")
    if given["DIE"] == str(seed):
        os.kill(os.getpid(), signal.SIGKILL)
    while given["HOLD"] and seed >= int(given["HOLD_FROM"] or 0) and Path(given["HOLD"]).exists():
        time.sleep(0.01)
