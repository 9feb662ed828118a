"""Runs experiments: every paired run is a task of its own, is kept in a file when it ends, and is never made twice.

A run is in ``<experiment>/<seed>.json`` with one digest of all code. A run of other code or other libraries is made
again.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from rlverify.project.code import CurrentCode
from rlverify.project.content import Project
from rlverify.project.registry import EXPERIMENTS, Experiment
from rlverify.records.attempts import Crash, attempt
from rlverify.records.claims import Claim
from rlverify.records.errors import ProbeError
from rlverify.records.measured import PairedRun
from rlverify.records.process import pin_threads
from rlverify.running.executors import Ended, Executor, Job, ProcessExecutor, Progress
from rlverify.running.runner import how_it_died, run_within


def save_run(root: Path, run: PairedRun, code: str) -> None:
    """Keep a run that has ended; whatever interrupts this, the file is whole or is not there.

    :param code: digest of the code that it ran
    """
    path = root / run.experiment / f"{run.seed}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"seconds": run.seconds, "quantities": dict(run.quantities), "code": code}
    path.with_suffix(".pending").write_text(json.dumps(content) + "\n", encoding="utf-8")
    path.with_suffix(".pending").replace(path)


def kept_run(root: Path, experiment: str, seed: int, code: str) -> PairedRun | None:
    """A run that is kept; None where there is none of this code, or an interruption or another version left the file.

    :param code: digest of the code as it is now
    """
    try:
        kept = json.loads((root / experiment / f"{seed}.json").read_bytes())
        run = PairedRun(experiment, seed, tuple(kept["quantities"].items()), kept["seconds"])
        return run if kept["code"] == code else None
    except (OSError, ValueError, AttributeError, KeyError, TypeError):
        return None


RUN_LIMIT = 900.0
"""Seconds that one paired run may take."""


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


class FigureRuns:
    """Runs of experiments: those that are kept, and those that are left, which are kept as soon as they end.

    :param ended: the first, and those that ended since, by experiment and seed
    """

    def __init__(
        self,
        project: Project,
        root: Path,
        seeds: Mapping[str, Sequence[int]],
        *,
        code: CurrentCode,
        limit: float = RUN_LIMIT,
        keep: bool = True,
    ) -> None:
        self._project, self._root, self._code, self._limit, self._keep = project, root, code, limit, keep
        self._wanted = [(name, seed) for name in seeds for seed in seeds[name]]
        kept = {key: kept_run(root, *key, code.digest) for key in self._wanted}
        self.ended = {key: run for key, run in kept.items() if run is not None}

    def jobs(self) -> list[Job[PairedTask, PairedRun]]:
        """Return what is left to be run."""
        left = (key for key in self._wanted if key not in self.ended)
        return [Job(run_paired, PairedTask(self._project, *key, self._limit), self._note) for key in left]

    def _note(self, task: PairedTask, outcome: Ended[PairedRun]) -> None:
        run = self.ended[task.experiment, task.seed] = ended_run(task, outcome)
        if self._keep and run.error is None:
            self._code.check_unchanged()
            save_run(self._root, run, self._code.digest)

    def run(self, executor: Executor, on_progress: Progress) -> dict[str, tuple[PairedRun, ...]]:
        """Run what is left; return all runs by name of the experiment, in the order of the seeds.

        :param on_progress: called before the first run, and at least every second
        :raises HarnessError: if the code was changed while it was measured
        :raises KeyboardInterrupt: after the workers have been stopped
        """
        kept = len(self.ended)
        executor.run(self.jobs(), lambda done, total: on_progress(kept + done, kept + total))
        self._code.check_unchanged()
        found = defaultdict[str, tuple[PairedRun, ...]](tuple)
        for name, seed in self._wanted:
            found[name] += (self.ended[name, seed],)
        return found


def run_figure_once(project: Project, experiment: str, seed: int, *, limit: float = RUN_LIMIT) -> PairedRun:
    """One paired run in a worker process, kept nowhere."""
    task = PairedTask(project, experiment, seed, limit)
    (ended,) = ProcessExecutor(1).map(run_paired, [task])
    return ended_run(task, ended)


def ended_run(task: PairedTask, ended: Ended[PairedRun]) -> PairedRun:
    """The run of a task, or an error where its process died."""
    if ended.result is not None:
        return ended.result
    return PairedRun(task.experiment, task.seed, (), round(ended.seconds, 3), error=how_it_died(ended, task.limit))
