"""One run: all sections within their budgets, as one record."""

from __future__ import annotations

import datetime
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Final

import torch

from benchmarks.cuda import launches, marked_tests, optimizers, scaler, training
from benchmarks.cuda.device import describe
from benchmarks.cuda.plan import Plan
from benchmarks.cuda.timing import Budget, Clock, Record, rounded
from rlcore import RLCoreError

Section = Callable[[Plan, torch.device, Budget], list[Record]]

SECTIONS: Final[dict[str, Section]] = {
    "optimizer": optimizers.measure,
    "scaler": scaler.measure,
    "training": training.measure,
    "launches": launches.measure,
}


def measure(plan: Plan, device: torch.device, test_files: Sequence[Path], clock: Clock = perf_counter) -> Record:
    """Measure everything.

    :param device: ``cuda``, or ``cpu`` for a rehearsal
    :param test_files: of which the tests marked `cuda` are run
    :return: date, commit, device and sections, for :func:`benchmarks.cuda.page.render`
    """

    def tests(_: Plan, __: torch.device, budget: Budget) -> list[Record]:
        return [marked_tests.run(test_files, budget.seconds)]

    sections = {
        name: _section(name, section, plan, device, clock) for name, section in {**SECTIONS, "tests": tests}.items()
    }
    return {
        "schema_version": 1,
        "rehearsal": device.type != "cuda",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": _commit(),
        "device": describe(device),
        "sections": sections,
    }


def _section(name: str, section: Section, plan: Plan, device: torch.device, clock: Clock) -> Record:
    """What a section measured, or its error: what the others measured is worth a page."""
    print(f"{name}: at most about {plan.seconds[name]:.0f} s", flush=True)
    budget = Budget(plan.seconds[name], clock)
    found: Record
    try:
        found = {"records": section(plan, device, budget)}
    except (RuntimeError, RLCoreError) as error:
        found = {"error": f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"}
    return {"seconds": rounded(budget.spent), "budget_s": plan.seconds[name], **found}


def failed(record: Record) -> bool:
    """Whether a section could not be measured, or a test failed or did not run to its end."""
    sections = record["sections"]
    if any("error" in section for section in sections.values()):
        return True
    return any(outcome["failed"] or outcome["note"] for outcome in sections["tests"]["records"])


def _commit() -> str:
    program = shutil.which("git")
    if program is None:
        return "unknown"
    command = [program, "-C", str(marked_tests.ROOT), "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
