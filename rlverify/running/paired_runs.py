"""Runs experiments: every paired run is a task of its own, is kept in a file when it ends, and is never made twice.

A run is in ``<experiment>/<seed>.json`` with one digest of all code. A run of other code or other libraries is made
again; until then its file shows how long such runs take.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any

from rlverify.project.code import CurrentCode
from rlverify.project.content import Project
from rlverify.project.registry import EXPERIMENTS, Experiment
from rlverify.records.attempts import Crash, attempt
from rlverify.records.claims import Claim
from rlverify.records.errors import ProbeError
from rlverify.records.measured import PairedRun
from rlverify.records.process import pin_threads
from rlverify.running.executors import Ended, Executor, ProcessExecutor
from rlverify.running.runner import Progress, how_it_died, run_within


@dataclass(frozen=True)
class RunStore:
    """The runs of one experiment."""

    root: Path
    experiment: str

    @property
    def folder(self) -> Path:
        """The folder of its runs."""
        return self.root / self.experiment

    def save(self, run: PairedRun, code: str) -> None:
        """Keep a run that has ended; whatever interrupts this, the file is whole or is not there.

        :param code: digest of the code that it ran
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self._path(run.seed)
        content = {"seconds": run.seconds, "quantities": dict(run.quantities), "code": code}
        path.with_suffix(".pending").write_text(json.dumps(content) + "\n", encoding="utf-8")
        path.with_suffix(".pending").replace(path)

    def load(self, seeds: Iterable[int], code: str) -> list[PairedRun]:
        """Those of the runs that are kept; a file that cannot be read counts as none, so that its run is made again.

        :param code: digest of the code as it is now; a run of other code is none
        """
        found = ((seed, _read(self._path(seed))) for seed in seeds)
        return [
            PairedRun(self.experiment, seed, tuple(kept["quantities"].items()), kept["seconds"])
            for seed, kept in found
            if kept is not None and kept["code"] == code
        ]

    def discard(self, seeds: Iterable[int]) -> None:
        """Forget runs, so that they are made again."""
        for seed in seeds:
            self._path(seed).unlink(missing_ok=True)

    def seconds(self) -> list[float]:
        """How long each kept run of the experiment took, whatever code it ran."""
        found = map(_read, sorted(self.folder.glob("*.json")))
        return [kept["seconds"] for kept in found if kept is not None]

    def _path(self, seed: int) -> Path:
        return self.folder / f"{seed}.json"


def _read(path: Path) -> dict[str, Any] | None:
    """The content of a file; None where there is none, or an interruption or another version left it."""
    try:
        content = json.loads(path.read_bytes())
        return content if content.keys() >= {"seconds", "quantities", "code"} else None
    except (OSError, ValueError, AttributeError):
        return None


RUN_LIMIT = 900.0
"""Seconds that one paired run may take."""

# Runs done, runs in all, and the seconds that the others will take, if anything is known of them.
FigureProgress = Callable[[int, int, float | None], None]


@dataclass(frozen=True)
class PairedTask:
    """One paired run to be made; small enough to be sent to a worker process."""

    project: Project
    experiment: str
    seed: int
    limit: float = RUN_LIMIT


def seeds_of(claims: Iterable[Claim]) -> dict[str, tuple[int, ...]]:
    """The seeds that each experiment must be run with, each once however many claims need it."""
    seeds: dict[str, set[int]] = defaultdict(set)
    for claim in claims:
        seeds[claim.experiment].update(claim.seeds)
    return {experiment: tuple(sorted(found)) for experiment, found in seeds.items()}


def seconds_of_claims(claims: Sequence[Claim], runs: Iterable[PairedRun]) -> dict[str, float]:
    """Seconds that the runs of each claim took when they were made; claims of one experiment share them."""
    totals: dict[str, float] = defaultdict(float)
    for run in runs:
        totals[run.experiment] += run.seconds
    shares = Counter(claim.experiment for claim in claims)
    return {claim.id: totals[claim.experiment] / shares[claim.experiment] for claim in claims}


def run_paired(task: PairedTask) -> PairedRun:
    """One paired run; a crash becomes a run with an error."""
    started = perf_counter()
    outcome = attempt(lambda: _measure(task), lambda _: EXPERIMENTS.entries.get(task.experiment))
    if not isinstance(outcome, Crash):
        return outcome
    seconds = round(perf_counter() - started, 3)
    return PairedRun(task.experiment, task.seed, (), seconds, error=outcome.line, traceback=outcome.traceback)


def _measure(task: PairedTask) -> PairedRun:
    pin_threads()  # before the first import of what reads the environment
    measure = task.project.experiment(task.experiment)
    pin_threads()
    with redirect_stdout(sys.stderr):  # what an experiment prints must not mix with what the program prints
        started = perf_counter()
        quantities = _quantities(task, measure)
        return PairedRun(task.experiment, task.seed, quantities, round(perf_counter() - started, 3))


def _quantities(task: PairedTask, measure: Experiment) -> tuple[tuple[str, float], ...]:
    found = run_within(task.limit, lambda: measure(*task.project.make(), task.seed))
    quantities = {name: float(value) for name, value in found.items()}
    if not quantities:
        raise ProbeError(f"experiment {task.experiment!r} measured nothing")
    broken = {name: value for name, value in quantities.items() if not math.isfinite(value)}
    if broken:
        name, value = next(iter(broken.items()))
        raise ProbeError(f"experiment {task.experiment!r} measured {value} as {name!r}, of which there is no mean")
    return tuple(quantities.items())


def run_figures(
    project: Project,
    root: Path,
    seeds: Mapping[str, Sequence[int]],
    *,
    executor: Executor,
    on_progress: FigureProgress,
    code: CurrentCode,
    limit: float = RUN_LIMIT,
    ignore_cache: bool = False,
) -> dict[str, tuple[PairedRun, ...]]:
    """All runs of experiments, by name of the experiment and in the order of the seeds.

    Runs that are kept are not made again; those that are made are kept as soon as they end. Those that will take
    longest are made first, so that no core waits long for the last.

    :param on_progress: called before the first run, and after each
    :param ignore_cache: make the kept runs again
    :raises HarnessError: if the code was changed while it was measured
    :raises KeyboardInterrupt: after the workers have been stopped
    """
    stores = {name: RunStore(root, name) for name in seeds}
    ended = _kept_runs(stores, seeds, code, ignore_cache=ignore_cache)
    known = {name: store.seconds() for name, store in stores.items()}
    tasks = [
        PairedTask(project, name, seed, limit) for name in seeds for seed in seeds[name] if (name, seed) not in ended
    ]
    total = len(ended) + len(tasks)

    def report_progress() -> None:
        waiting = [task.experiment for task in tasks if (task.experiment, task.seed) not in ended]
        on_progress(len(ended), total, time_left(waiting, known, executor.jobs))

    def note(task: PairedTask, outcome: Ended[PairedRun]) -> None:
        run = ended_run(task, outcome)
        if run.error is None:
            known[task.experiment].append(run.seconds)
            code.check_unchanged()
            stores[run.experiment].save(run, code.digest)
        ended[task.experiment, task.seed] = run
        report_progress()

    report_progress()
    executor.map(run_paired, longest_first(tasks, known), note=note, on_wait=report_progress)
    code.check_unchanged()
    return {name: tuple(ended[name, seed] for seed in seeds[name]) for name in seeds}


def _kept_runs(
    stores: Mapping[str, RunStore], seeds: Mapping[str, Sequence[int]], code: CurrentCode, *, ignore_cache: bool
) -> dict[tuple[str, int], PairedRun]:
    """The runs of some seeds that are kept and of this code, by experiment and seed."""
    if ignore_cache:
        for name, store in stores.items():
            store.discard(seeds[name])
    kept = (run for name, store in stores.items() for run in store.load(seeds[name], code.digest))
    return {(run.experiment, run.seed): run for run in kept}


def repeat_runs(
    project: Project,
    root: Path,
    seeds: Mapping[str, Sequence[int]],
    code: CurrentCode,
    *,
    executor: Executor,
    on_progress: Progress,
) -> dict[tuple[str, int], PairedRun]:
    """Paired runs of this code, by experiment and seed; those that are kept are not made again, and none is kept."""
    found = _kept_runs({name: RunStore(root, name) for name in seeds}, seeds, code, ignore_cache=False)
    tasks = [PairedTask(project, name, seed) for name in seeds for seed in seeds[name] if (name, seed) not in found]
    total = len(found) + len(tasks)

    def note(task: PairedTask, outcome: Ended[PairedRun]) -> None:
        found[task.experiment, task.seed] = ended_run(task, outcome)
        on_progress(len(found), total)

    executor.map(run_paired, tasks, note=note, on_wait=lambda: on_progress(len(found), total))
    code.check_unchanged()
    return found


def run_figure_once(project: Project, experiment: str, seed: int, *, limit: float = RUN_LIMIT) -> PairedRun:
    """One paired run in a worker process, kept nowhere."""
    task = PairedTask(project, experiment, seed, limit)
    (ended,) = ProcessExecutor(1).map(run_paired, [task])
    return ended_run(task, ended)


def longest_first(tasks: Sequence[PairedTask], known: Mapping[str, Sequence[float]]) -> list[PairedTask]:
    """Order tasks for their start: those of unknown length first, seed by seed, to learn how long they take."""

    def place(task: PairedTask) -> tuple[float, int]:
        seconds = known[task.experiment]
        return (-fmean(seconds) if seconds else -math.inf, task.seed)

    return sorted(tasks, key=place)


def time_left(waiting: Sequence[str], known: Mapping[str, Sequence[float]], processes: int) -> float | None:
    """Seconds until all have ended; an experiment of which nothing is known counts as the mean of the others."""
    means = {name: fmean(seconds) for name, seconds in known.items() if seconds}
    if not waiting:
        return 0.0
    if not means:
        return None
    other = fmean(means.values())
    return sum(means.get(name, other) for name in waiting) / min(processes, len(waiting))


def ended_run(task: PairedTask, ended: Ended[PairedRun]) -> PairedRun:
    """The run of a task, or an error where its process died."""
    if ended.result is not None:
        return ended.result
    return PairedRun(task.experiment, task.seed, (), round(ended.seconds, 3), error=how_it_died(ended, task.limit))
