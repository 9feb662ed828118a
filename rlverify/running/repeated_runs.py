"""Repeats some paired runs and measures plots, in worker processes and without keeping them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from rlverify.project.content import Project
from rlverify.project.current_code import CurrentCode
from rlverify.records.code_records import Executed
from rlverify.records.errors import HarnessError
from rlverify.records.plot_points import Plot
from rlverify.records.runs import PairedRun
from rlverify.running.paired_runs import PairedTask, ended_run, run_paired
from rlverify.running.pool import Ended, pin_threads, run_each
from rlverify.running.run_store import RunStore
from rlverify.running.runner import Crash, attempt, attempt_recorded


def repeat_runs(
    project: Project, root: Path, seeds: Mapping[str, Sequence[int]], code: CurrentCode, *, processes: int
) -> dict[tuple[str, int], PairedRun]:
    """Paired runs of this code, by experiment and seed; those that are kept are not made again.

    :param root: folder of the kept runs
    :param seeds: the seeds of each experiment
    """
    stores = {name: RunStore(root, name) for name in seeds}
    found = {(run.experiment, run.seed): run for name in seeds for run in stores[name].load(seeds[name], code.digest)}
    tasks = [PairedTask(project, name, seed) for name in seeds for seed in seeds[name] if (name, seed) not in found]

    def note(task: PairedTask, outcome: Ended[PairedRun]) -> None:
        found[task.experiment, task.seed] = ended_run(task, outcome)

    run_each(run_paired, tasks, processes=processes, note=note)
    return found


@dataclass(frozen=True)
class PlotTask:
    """A plot to be measured; small enough to be sent to a worker process."""

    project: Project
    name: str


@dataclass(frozen=True)
class MeasuredPlot:
    """What measuring a plot gave.

    :param error: one line, where it crashed
    """

    plot: Plot | None
    executed: Executed
    error: str = ""


def measure_plots(project: Project, names: Iterable[str], *, processes: int) -> dict[str, tuple[Plot, Executed]]:
    """Plots of this code, with what they executed.

    :raises HarnessError: if one of them crashes
    """
    found: dict[str, tuple[Plot, Executed]] = {}

    def note(task: PlotTask, outcome: Ended[MeasuredPlot]) -> None:
        measured = outcome.result
        if measured is None or measured.plot is None:
            raise HarnessError(f"plot {task.name!r}: {measured.error if measured else 'its process died'}")
        found[task.name] = (measured.plot, measured.executed)

    run_each(_measure_plot, [PlotTask(project, name) for name in sorted(names)], processes=processes, note=note)
    return found


def _measure_plot(task: PlotTask) -> MeasuredPlot:
    outcome = attempt_recorded(lambda: _plot(task), task.project)
    if isinstance(outcome, Crash):
        return MeasuredPlot(None, Executed(), outcome.line)
    plot, executed = outcome
    return MeasuredPlot(None, executed, plot) if isinstance(plot, str) else MeasuredPlot(plot, executed)


def _plot(task: PlotTask) -> Plot | str:
    pin_threads()
    with redirect_stdout(sys.stderr):  # what it prints must not mix with what the program prints
        outcome = attempt(lambda: task.project.plots[task.name](*task.project.make()))
    return outcome.line if isinstance(outcome, Crash) else outcome
