"""Runs the field report: each algorithm and optimizer in a worker process, then the scripts that show findings."""

from __future__ import annotations

import platform
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks.field.algorithms import ALGORITHMS, OFF_POLICY, ROLLOUT
from benchmarks.field.effects import effect_of
from benchmarks.field.records import Checked, Effect, FieldReport, Shown
from rlverify.checks.engine.check_records import Status
from rlverify.checks.engine.rule_runs import check_algorithm
from rlverify.checks.rules.optimizers import check_optimizer
from rlverify.records.attempts import Crash, attempt
from rlverify.running.executors import Ended, Executor

LIBRARIES: Final = ("stable-baselines3", "sb3-contrib", "torch", "gymnasium", "numpy", "rlverify")
DEFAULTS: Final = "defaults"
AWKWARD: Final = "awkward"
SECONDS: Final = 120.0
"""Of a script that shows a finding."""
NOT_OPTIMIZERS: Final = ("Optimizer",)


@dataclass(frozen=True)
class FieldTask:
    """What one process checks; see `Checked` for the fields."""

    name: str
    library: str
    variant: str
    factory: str
    source: str


def algorithm_tasks(names: Sequence[str] = ()) -> list[FieldTask]:
    """All algorithms in both variants, or those of some names."""
    tasks = []
    for each in ALGORITHMS:
        if names and each.name not in names:
            continue
        for variant, make, source in zip((DEFAULTS, AWKWARD), (each.defaults, each.awkward), each.sources, strict=True):
            place = f"{make.__module__}:{make.__name__}"
            tasks.append(FieldTask(each.name, each.library, variant, place, source))
    return tasks


def optimizer_tasks(names: Sequence[str] = ()) -> list[FieldTask]:
    """All optimizers that ``torch.optim`` exports, or those of some names."""
    found = [name for name in sorted(vars(torch.optim)) if _is_optimizer(name) and (not names or name in names)]
    return [FieldTask(name, "torch", DEFAULTS, f"torch.optim:{name}", "") for name in found]


def _is_optimizer(name: str) -> bool:
    value = getattr(torch.optim, name)
    return isinstance(value, type) and issubclass(value, torch.optim.Optimizer) and name not in NOT_OPTIMIZERS


def measure(
    names: Sequence[str] = (), *, executor: Executor, on_done: Callable[[FieldTask, float], None] = lambda *_: None
) -> FieldReport:
    """Run every check on what is installed.

    :param names: of algorithms and optimizers; all by default
    :param executor: where they are checked
    :param on_done: called with each task that has ended, and its seconds
    """
    algorithms, optimizers = algorithm_tasks(names), optimizer_tasks(names)
    found: dict[FieldTask, Checked] = {}

    def note(task: FieldTask, ended: Ended[Checked]) -> None:
        lost = ended.reason or f"its process ended with exit code {ended.exit_code}"
        found[task] = ended.result or _checked(task, problem=lost)
        on_done(task, ended.seconds)

    executor.map(_run, [*algorithms, *optimizers], note=note)
    checked = tuple(found[task] for task in algorithms)
    return FieldReport(
        date=datetime.now(UTC).date().isoformat(),
        versions={"python": platform.python_version(), **{name: metadata.version(name) for name in LIBRARIES}},
        constants={"ROLLOUT": repr(ROLLOUT), "OFF_POLICY": repr(OFF_POLICY)},
        algorithms=checked,
        optimizers=tuple(found[task] for task in optimizers),
        reproductions=tuple(_shown(each) for each in _failed(checked) if _script(each).is_file()),
    )


def _run(task: FieldTask) -> Checked:
    warnings.simplefilter("ignore")  # which are about settings that were chosen on purpose
    found = attempt(lambda: _of_optimizer(task) if task.library == "torch" else _of_algorithm(task))
    return _checked(task, problem=found.line) if isinstance(found, Crash) else found


def _checked(task: FieldTask, **found: Any) -> Checked:
    """What is kept of a task; the report says itself how to repeat a check, and is what libraries are known by."""
    place = {"name": task.name, "library": task.library, "variant": task.variant}
    found["records"] = tuple(replace(each, reproduction="", library=None) for each in found.get("records", ()))
    return Checked(**{**place, "factory": task.factory, "source": task.source, "effects": {}, **found})


def _of_optimizer(task: FieldTask) -> Checked:
    records = check_optimizer(partial(_optimizer, task.name), name=task.name)
    return _checked(task, records=records)


def _optimizer(name: str, parameters: list[Any]) -> torch.optim.Optimizer:
    """One with its defaults; SGD had no default of the learning rate for most of its life, and has one now."""
    made: torch.optim.Optimizer = getattr(torch.optim, name)(parameters)
    return made


def _of_algorithm(task: FieldTask) -> Checked:
    module, _, name = task.factory.partition(":")
    make = getattr(import_module(module), name)
    records = check_algorithm(make, name=task.name)
    failed = [each.check for each in records if each.status is Status.FAIL] if task.variant == DEFAULTS else []
    found = {check: attempt(partial(effect_of, check, make)) for check in failed}
    crashed = [f"the effect of {check}: {each.line}" for check, each in found.items() if isinstance(each, Crash)]
    effects = {check: each for check, each in found.items() if isinstance(each, Effect)}
    return _checked(task, records=records, effects=effects, problem="; ".join(crashed))


def _failed(checked: Sequence[Checked]) -> list[str]:
    """The names of checks that failed anywhere, each once."""
    found = (each.check for one in checked for each in one.records if each.status is Status.FAIL)
    return list(dict.fromkeys(found))


def _script(check: str) -> Path:
    return Path(__file__).parent / "reproductions" / f"{check}.py"


def _shown(check: str) -> Shown:
    """Run the script of a check in an empty folder."""
    script = _script(check)
    code = script.read_text(encoding="utf-8").strip()
    with tempfile.TemporaryDirectory(prefix="rlverify-field-") as folder:
        command = [sys.executable, "-W", "ignore", str(script)]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return Shown(check, code, f"(did not end within {SECONDS:g} seconds)")
    last_error = done.stderr.strip().rpartition("\n")[2]
    return Shown(check, code, done.stdout.strip() or last_error or "(nothing)")
