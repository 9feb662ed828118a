"""Repeats some paired runs and measures plots, in worker processes and without keeping them."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path

from rlverify.project.content import Project
from rlverify.project.current_code import CurrentCode
from rlverify.project.plots import PLOTS
from rlverify.records.code_records import Executed
from rlverify.records.errors import ProbeError
from rlverify.records.plot_points import Plot
from rlverify.records.runs import PairedRun
from rlverify.running.executor import Executor
from rlverify.running.paired_runs import PairedTask, ended_run, run_paired
from rlverify.running.pool import Ended, pin_threads
from rlverify.running.run_store import RunStore
from rlverify.running.runner import Crash, Progress, attempt, attempt_recorded, how_it_died


def repeat_runs(
    project: Project,
    root: Path,
    seeds: Mapping[str, Sequence[int]],
    code: CurrentCode,
    *,
    executor: Executor,
    on_progress: Progress,
    recorded: frozenset[str] = frozenset(),
) -> dict[tuple[str, int], PairedRun]:
    """Paired runs of this code, by experiment and seed; those that are kept are not made again.

    :param root: folder of the kept runs
    :param seeds: the seeds of each experiment
    :param on_progress: called with the number of runs done and of all, at least every second
    :param recorded: the experiments of which it is recorded what a run executes
    """
    stores = {name: RunStore(root, name) for name in seeds}
    found = {(run.experiment, run.seed): run for name in seeds for run in stores[name].load(seeds[name], code.digest)}
    tasks = [
        PairedTask(project, name, seed, recorded=name in recorded)
        for name in seeds
        for seed in seeds[name]
        if (name, seed) not in found
    ]
    total = len(found) + len(tasks)

    def report_progress() -> None:
        on_progress(len(found), total)

    def note(task: PairedTask, outcome: Ended[PairedRun]) -> None:
        found[task.experiment, task.seed] = ended_run(task, outcome)
        report_progress()

    executor.map(run_paired, tasks, note=note, on_wait=report_progress)
    return found


@dataclass(frozen=True)
class PlotTask:
    """A plot to be measured; small enough to be sent to a worker process.

    :param recorded: whether what it executes is recorded, which takes twice as long
    """

    project: Project
    name: str
    recorded: bool

    @property
    def label(self) -> str:
        """What it is, for who watches."""
        return f"plot {self.name}"


@dataclass(frozen=True)
class MeasuredPlot:
    """What measuring a plot gave.

    :param error: one line, where it crashed or its process died
    """

    plot: Plot | None
    executed: Executed = field(default_factory=Executed)
    error: str = ""


def measure_plots(
    project: Project, names: Iterable[str], *, executor: Executor, on_progress: Progress, recorded: frozenset[str]
) -> dict[str, MeasuredPlot]:
    """Plots of this code, by name.

    :param on_progress: called with the number of plots done and of all, at least every second
    :param recorded: names of those of which it is recorded what they execute; it is empty otherwise
    """
    found: dict[str, MeasuredPlot] = {}
    tasks = [PlotTask(project, name, name in recorded) for name in sorted(names)]

    def report_progress() -> None:
        on_progress(len(found), len(tasks))

    def note(task: PlotTask, outcome: Ended[MeasuredPlot]) -> None:
        found[task.name] = outcome.result or MeasuredPlot(None, error=how_it_died(outcome, math.inf))
        report_progress()

    executor.map(_measure_plot, tasks, note=note, on_wait=report_progress)
    return found


def _measure_plot(task: PlotTask) -> MeasuredPlot:
    if not task.recorded:
        return _plot(task)
    outcome = attempt_recorded(lambda: _plot(task), task.project)
    if isinstance(outcome, Crash):
        return MeasuredPlot(None, error=outcome.line)
    return replace(outcome[0], executed=outcome[1])


def _plot(task: PlotTask) -> MeasuredPlot:
    pin_threads()
    with redirect_stdout(sys.stderr):  # what it prints must not mix with what the program prints
        outcome = attempt(lambda: _points(task), lambda _: PLOTS.entries.get(task.name))
    return MeasuredPlot(None, error=outcome.line) if isinstance(outcome, Crash) else MeasuredPlot(outcome)


def _points(task: PlotTask) -> Plot:
    found = task.project.plots[task.name](*task.project.make())
    if not isinstance(found, Plot):
        raise ProbeError(f"plot {task.name!r} returned {found!r}; return a Plot")
    return found
