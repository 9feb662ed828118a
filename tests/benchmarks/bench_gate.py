"""What ``gate --changed`` measures after a change in one function, and how long that takes next to the full gate.

The ten changes are those of `tests.meta.one_function_changes`; none of them changes what the core does. Each is
made in a copy of the repository, in which both gates are timed in turn, and undone after it.
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
from tests.support.repository_copy import ROOT, commit, copy_repository, environment

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


def cells(changed: Gate, full: Gate) -> list[str]:
    """The end of a row in the table."""
    times = (changed.seconds, full.seconds, changed.cpu_seconds, full.cpu_seconds)
    return [str(changed.measured), *(f"{each:.1f}" for each in times)]


def bench_one_function_changes(benchmark: Any, tmp_path: Path) -> None:
    project = open_project(ROOT)
    functions, claims = functions_of_core(project), len(project.claims)
    copy = copy_repository(tmp_path / "copy")
    with (copy / "README.md").open("a", encoding="utf-8") as file:
        file.write("\n")
    commit(copy)  # so that there is a commit before the last one, with which the full gate compares
    idle = (_gate(copy, *CHANGED), _gate(copy))
    assert idle[0].measured == 0
    pairs, rows = [], []
    for function in middles(functions, CHANGES):
        path, source = copy / function.path, (copy / function.path).read_text(encoding="utf-8")
        path.write_text(change(source, function.name), encoding="utf-8")
        pairs.append((_gate(copy, *CHANGED), _gate(copy)))
        path.write_text(source, encoding="utf-8")
        rows.append([f"`{function.path}`", f"`{function.name}`", *cells(*pairs[-1])])
    rows.append(["none", "-", *cells(*idle)])
    benchmark.pedantic(lambda: None)
    columns = [
        "file", "function changed", f"claims measured of {claims}", "s, `--changed`", "s, full",
        "processor s, `--changed`", "processor s, full",
    ]  # fmt: skip
    table(benchmark, columns, rows, f"{_medians(pairs)} {_what_they_stand_for(functions)}")


def _medians(pairs: Sequence[tuple[Gate, Gate]]) -> str:
    share = median(changed.seconds / full.seconds for changed, full in pairs)
    of_cpu = median(changed.cpu_seconds / full.cpu_seconds for changed, full in pairs)
    count = median(changed.measured or 0 for changed, _ in pairs)
    return (
        f"Medians: after one of the ten changes, `gate --changed` measures {count:g} claims and takes {share:.2f} of "
        f"the time of the full gate, and {of_cpu:.2f} of its processor time. Target: under 1/3 of the time, "
        f"{'MET' if share < TARGET else 'MISSED'}. Both repeat one run of each figure, and each plot, of which a run "
        "executed the changed function."
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
