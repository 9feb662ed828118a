"""How long the engine takes: a list of the claims, the gate, and what the pytest plugin adds to a test run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.side_by_side import table

PAIRS = 15
"""Of test sessions with and without the plugin."""

RLVERIFY = [str(Path(sys.executable).with_name("rlverify"))]
COMMANDS = {
    "rlverify list": ([*RLVERIFY, "list"], 10, "0.5 s"),
    "rlverify gate": ([*RLVERIFY, "gate"], 3, "45 s"),
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


def bench_plugin(benchmark: Any, tmp_path: Path) -> None:
    """A session of one empty test that plants nothing: with the plugin and without it, in turns."""
    (tmp_path / "test_nothing.py").write_text("def test_nothing():\n    pass\n", encoding="utf-8")
    session = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    differences = []
    for _ in range(PAIRS):
        without, added = _seconds([*session, "-p", "no:rlverify"]), _seconds(session)
        differences.append(1000 * (added - without))
    figures = " / ".join(f"{figure:.0f}" for figure in (min(differences), median(differences), max(differences)))
    benchmark.pedantic(lambda: None)
    rows = [["the pytest plugin, where no fault is planted", "50 ms", figures, str(PAIRS)]]
    table(benchmark, ["adds to a test run", "target, under", "ms (min / median / max)", "pairs"], rows)


def _seconds(command: list[str]) -> float:
    start = perf_counter()
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return perf_counter() - start
