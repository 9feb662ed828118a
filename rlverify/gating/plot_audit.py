"""Which plots are out of date, and their points measured again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from rlverify.evidence.files import write_files
from rlverify.evidence.plot_files import FOLDER, load_plots, to_json
from rlverify.gating.committed_evidence import Committed
from rlverify.gating.lock_check import lacking
from rlverify.gating.problem_rules import REMEDY
from rlverify.records.code_records import CodeRecord, Executed
from rlverify.records.errors import EvidenceError, HarnessError
from rlverify.records.exit_codes import CLAIM_FELL
from rlverify.records.plot_points import Plot
from rlverify.records.problems import Problem
from rlverify.running.executor import Executor
from rlverify.running.recording import executed_by_imports
from rlverify.running.repeated_runs import measure_plots
from rlverify.running.runner import Progress, no_progress

AGREEMENT: Final = 0.02
"""Part of the largest value of a line by which its points may differ on another machine."""


def check_plots(
    committed: Committed,
    selected: frozenset[str],
    *,
    executor: Executor,
    on_progress: Progress = no_progress,
    recorded: frozenset[str] = frozenset(),
) -> list[Problem]:
    """What is wrong with the committed points of plots.

    Plots that are selected, or whose code has changed, are measured again and compared.

    :param on_progress: called with the number of plots done and of all
    :param recorded: names of plots of which it is compared with the lock file what they execute
    :raises HarnessError: if the code is changed meanwhile
    """
    plots, project = load_plots(committed.paths.reports), committed.project
    gone = [f"{FOLDER}/{name}.json" for name in sorted(plots.keys() - project.plots.keys())]
    missing = [f"{FOLDER}/{name}.json" for name in sorted(project.plots.keys() - plots.keys())]
    problems = [Problem(name, CLAIM_FELL, "nothing measures this plot any more", remedy=REMEDY) for name in gone]
    problems += [Problem(name, CLAIM_FELL, "is missing", remedy=REMEDY) for name in missing]
    names = {name for name in plots if name in project.plots and (name in selected or not _fits(committed, name))}
    fresh = measure_plots(project, names, executor=executor, on_progress=on_progress, recorded=recorded)
    committed.code.check_unchanged()
    for name, measured in sorted(fresh.items()):
        subject = f"{FOLDER}/{name}.json"
        if measured.plot is None:
            problems.append(Problem(subject, CLAIM_FELL, f"measured again, crashes: {measured.error}"))
        elif differences := list(_differences(plots[name], measured.plot)):
            sentence = f"measured again, {differences[0]}"
            problems.append(Problem(subject, CLAIM_FELL, sentence, remedy=f"if that is right, {REMEDY}"))
    found = {name: _record(committed, name, fresh[name].executed, Executed()) for name in names & recorded}
    return problems + lacking(committed.code, _locked(committed), found)


def _record(committed: Committed, name: str, executed: Executed, imported: Executed) -> CodeRecord:
    return committed.code.record("", [committed.project.plots[name].__module__], executed, imported)


def replace_plots(
    committed: Committed, *, executor: Executor, all_claims: bool, on_progress: Progress = no_progress
) -> Mapping[str, CodeRecord]:
    """Commit the points of every plot: those committed where they fit, and the others measured here and now.

    :param all_claims: otherwise nothing is measured
    :param on_progress: called with the number of plots done and of all
    :returns: what each plot was measured of
    :raises EvidenceError: if they cannot be written
    :raises HarnessError: if one of them crashes or the code is changed meanwhile; nothing has been replaced then
    """
    project, reports = committed.project, committed.paths.reports
    records = {name: record for name, record in _locked(committed).items() if name in project.plots}
    if not all_claims:
        return records
    kept = {name for name in project.plots if _is_readable(reports, name) and _fits(committed, name)}
    names = project.plots.keys() - kept
    fresh = measure_plots(project, names, executor=executor, on_progress=on_progress, recorded=frozenset(names))
    committed.code.check_unchanged()
    imported = executed_by_imports(project) if fresh else Executed()
    texts = {}
    for name, measured in sorted(fresh.items()):
        if measured.plot is None:
            raise HarnessError(f"plot {name!r}: {measured.error}; nothing was replaced")
        records[name] = _record(committed, name, measured.executed, imported)
        texts[f"{name}.json"] = to_json(measured.plot)
    if fresh:
        write_files(reports / FOLDER, texts)
    for path in (reports / FOLDER).glob("*.*"):
        if path.stem not in project.plots:
            path.unlink()
    return records


def _locked(committed: Committed) -> Mapping[str, CodeRecord]:
    try:
        return committed.lock.plots
    except EvidenceError:
        return {}


def _fits(committed: Committed, name: str) -> bool:
    """Whether a plot was measured of the code of today."""
    record = _locked(committed).get(name)
    return record is not None and not committed.code.changed(record)


def _is_readable(reports: Path, name: str) -> bool:
    try:
        return name in load_plots(reports)
    except EvidenceError:
        return False


def _differences(committed: Plot, fresh: Plot) -> Iterator[str]:
    """Where two plots differ by more than another machine explains."""
    was, now = ({line.label: line.values for line in plot.lines} for plot in (committed, fresh))
    texts = [(each.title, each.x_label, each.y_label, each.note, each.log_x, each.log_y) for each in (committed, fresh)]
    if texts[0] != texts[1] or was.keys() != now.keys() or not _are_close(committed.positions, fresh.positions):
        yield "its texts, lines or positions differ"
        return
    for label, values in now.items():
        margin = AGREEMENT * max(abs(each or 0.0) for each in was[label])
        for position, value, old in zip(fresh.positions, values, was[label], strict=True):
            if (value is None) != (old is None) or abs((value or 0.0) - (old or 0.0)) > margin:
                yield f"line {label!r} is {value} at {position:g}, committed {old}"


def _are_close(was: Sequence[float], now: Sequence[float]) -> bool:
    """Whether positions agree as values do: to a part of the largest."""
    margin = AGREEMENT * max(map(abs, was))
    return len(was) == len(now) and all(abs(a - b) <= margin for a, b in zip(was, now, strict=True))
