"""What ``gate --changed`` measures after a change in one function, and how long that takes next to the full gate.

The ten changes are those of `tests.meta.one_function_changes`; none of them changes what the core does. Each is
made in a copy of the repository, and undone after it. The full gate is timed before the ten, after five and after all.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any

from rlverify.project.content import open_project
from tests.benchmarks.side_by_side import table
from tests.meta.one_function_changes import change, functions_of_core, middles
from tests.support.repository_copy import ROOT, copy_repository, environment

CHANGES = 10
TARGET = 1 / 3
"""Of the time of the full gate, for the median of the changes."""


def bench_one_function_changes(benchmark: Any, tmp_path: Path) -> None:
    project = open_project(ROOT)
    everything = functions_of_core(project)
    copy = copy_repository(tmp_path / "copy")
    full = [_gate(copy)[0]]
    idle, none = _gate(copy, "--changed", "--base", "HEAD")
    assert none == 0
    rows, times, counts = [], [], []
    for number, function in enumerate(middles(everything, CHANGES), 1):
        path, source = copy / function.path, (copy / function.path).read_text(encoding="utf-8")
        path.write_text(change(source, function.name), encoding="utf-8")
        seconds, measured = _gate(copy, "--changed", "--base", "HEAD")
        path.write_text(source, encoding="utf-8")
        rows.append([f"`{function.path}`", f"`{function.name}`", str(measured), f"{seconds:.1f}"])
        times.append(seconds)
        counts.append(measured)
        if number in (CHANGES // 2, CHANGES):
            full.append(_gate(copy)[0])
    shares = [seconds / median(full) for seconds in times]
    rows = [[*row, f"{share:.2f}"] for row, share in zip(rows, shares, strict=True)]
    quarters = quantiles([each.claims for each in everything for _ in range(each.lines)], n=4)
    share, whole = median(shares), len(project.claims)
    note = (
        f"`rlverify gate` takes {min(full):.1f} / {median(full):.1f} / {max(full):.1f} s (min / median / max of "
        f"{len(full)}), and `gate --changed` without a change {idle:.1f} s. After one of the ten changes it measures "
        f"{median(counts):g} of {whole} claims and takes {share:.2f} of the full gate (medians); target: under 1/3, "
        f"{'MET' if share < TARGET else 'MISSED'}. It also repeats one run of each selected figure, which the full "
        "gate does only after a change. The ten stand for all lines in functions of `rlcore`: a quarter of these lines "
        f"were executed by at most {quarters[0]:g} claims, half by at most {quarters[1]:g}, three quarters by at most "
        f"{quarters[2]:g}."
    )
    benchmark.pedantic(lambda: None)
    columns = ["file", "function changed", f"claims measured of {whole}", "s", "of the full gate"]
    table(benchmark, columns, rows, note)


def _gate(copy: Path, *arguments: str) -> tuple[float, int]:
    """Seconds of one gate, and how many claims it said it measured."""
    command = [sys.executable, "-m", "rlverify.cli.entry", "gate", *arguments]
    start = perf_counter()
    done = subprocess.run(command, cwd=copy, env=environment(copy), capture_output=True, text=True, check=False)
    seconds = perf_counter() - start
    assert done.returncode in (0, 1), done.stdout + done.stderr  # 1: a fault is pinned to the function
    said = re.search(r"measured (\d+) of", done.stdout)
    return seconds, int(said[1]) if said else 0
