"""How long the harness takes: a list of the claims, and the gate."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from tests.benchmarks.side_by_side import table

RLVERIFY = [str(Path(sys.executable).with_name("rlverify"))]
COMMANDS = {
    "rlverify list": ([*RLVERIFY, "list"], 10, "0.5 s"),
    "rlverify gate": ([*RLVERIFY, "gate"], 3, "90 s"),
    "rlverify gate --changed, after no change": ([*RLVERIFY, "gate", "--changed"], 3, "-"),
    "python -c pass": ([sys.executable, "-c", "pass"], 10, "-"),
}


def bench_commands(benchmark: Any) -> None:
    rows = []
    for name, (command, count, target) in COMMANDS.items():
        times = [_seconds(command) for _ in range(count)]
        figures = " / ".join(f"{figure:.2f}" for figure in (min(times), median(times), max(times)))
        rows.append([f"`{name}`", target, figures, str(count)])
    benchmark.pedantic(lambda: None)
    table(benchmark, ["command", "target, under", "s (min / median / max)", "runs"], rows)


def _seconds(command: list[str]) -> float:
    start = perf_counter()
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return perf_counter() - start
