"""What ``gate --changed`` measures after a change in one function, and how long that takes next to the full gate.

The ten changes are those of `tests.meta.one_function_changes`; none of them changes what the core does. Each is
made in a copy of the repository, and undone after it. The full gate is timed before the ten, after five and after all.
"""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any

from rlverify.project.content import open_project
from tests.benchmarks.side_by_side import table
from tests.meta.one_function_changes import Function, change, functions_of_core, middles
from tests.support.repository_copy import ROOT, copy_repository, environment

CHANGES = 10
TARGET = 1 / 3
"""Of the time of the full gate, for the median of the changes."""
CHANGED = ("--changed", "--base", "HEAD")


@dataclass(frozen=True)
class Gate:
    """One gate.

    :param cpu_seconds: of all its processes; a busy machine makes them hardly longer
    :param measured: how many claims it said it measured; the full gate says nothing
    """

    seconds: float
    cpu_seconds: float
    measured: int | None

    @property
    def cells(self) -> list[str]:
        """The end of its row in the table."""
        return ["-" if self.measured is None else str(self.measured), f"{self.seconds:.1f}", f"{self.cpu_seconds:.1f}"]


def bench_one_function_changes(benchmark: Any, tmp_path: Path) -> None:
    project = open_project(ROOT)
    functions = functions_of_core(project)
    copy = copy_repository(tmp_path / "copy")
    full, idle, changed, rows = [_gate(copy)], _gate(copy, *CHANGED), [], []
    assert idle.measured == 0
    for number, function in enumerate(middles(functions, CHANGES), 1):
        path, source = copy / function.path, (copy / function.path).read_text(encoding="utf-8")
        path.write_text(change(source, function.name), encoding="utf-8")
        changed.append(_gate(copy, *CHANGED))
        path.write_text(source, encoding="utf-8")
        rows.append([f"`{function.path}`", f"`{function.name}`", *changed[-1].cells])
        if number in (CHANGES // 2, CHANGES):
            full.append(_gate(copy))
    rows.append(["none", "-", *idle.cells])
    rows += [["the full gate", "-", *each.cells] for each in full]
    benchmark.pedantic(lambda: None)
    columns = ["file", "function changed", f"claims measured of {len(project.claims)}", "s", "processor s"]
    table(benchmark, columns, rows, f"{_medians(full, changed)} {_what_they_stand_for(functions)}")


def _medians(full: Sequence[Gate], changed: Sequence[Gate]) -> str:
    share = median(each.seconds for each in changed) / median(each.seconds for each in full)
    of_cpu = median(each.cpu_seconds for each in changed) / median(each.cpu_seconds for each in full)
    count = median(each.measured or 0 for each in changed)
    return (
        f"Medians: after one of the ten changes, `gate --changed` measures {count:g} claims and takes {share:.2f} of "
        f"the time of the full gate, and {of_cpu:.2f} of its processor time. Target: under 1/3 of the time, "
        f"{'MET' if share < TARGET else 'MISSED'}. It also repeats one run of each figure that it selects, which the "
        "full gate does only after a change."
    )


def _what_they_stand_for(functions: Sequence[Function]) -> str:
    quarters = quantiles([each.claims for each in functions for _ in range(each.lines)], n=4)
    return (
        "The ten stand for all lines in functions of `rlcore`: a quarter of these lines were executed by at most "
        f"{quarters[0]:g} claims, half by at most {quarters[1]:g}, three quarters by at most {quarters[2]:g}."
    )


def _gate(copy: Path, *arguments: str) -> Gate:
    command = [sys.executable, "-m", "rlverify.cli.entry", "gate", *arguments]
    start, before = perf_counter(), _processor_time()
    done = subprocess.run(command, cwd=copy, env=environment(copy), capture_output=True, text=True, check=False)
    seconds, cpu_seconds = perf_counter() - start, _processor_time() - before
    assert done.returncode in (0, 1), done.stdout + done.stderr  # 1: a fault is pinned to the function
    said = re.search(r"measured (\d+) of", done.stdout)
    return Gate(seconds, cpu_seconds, int(said[1]) if said else None)


def _processor_time() -> float:
    """Of all processes that have ended below this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
