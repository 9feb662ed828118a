"""Which plots are out of date, and their points measured again."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path

from rlverify.evidence.files import write_files
from rlverify.evidence.plot_files import FOLDER, Points, load_plots, to_json
from rlverify.project.content import Project
from rlverify.records.errors import EvidenceError
from rlverify.running.pool import pin_threads


def plot_problems(project: Project, reports: Path) -> list[tuple[str, str]]:
    """(file, what is wrong) of every plot whose committed points are not those of the code of today."""
    committed = load_plots(reports)
    problems = []
    for name in sorted({*project.plots, *committed}):
        if name not in project.plots:
            problems.append((f"{FOLDER}/{name}.json", "nothing measures this plot any more"))
        elif name not in committed:
            problems.append((f"{FOLDER}/{name}.json", "is missing"))
        elif committed[name].digest != project.plot_digest(name):
            problems.append((f"{FOLDER}/{name}.json", "was measured of other code"))
    return problems


def replace_plots(project: Project, reports: Path) -> None:
    """Commit the points of every plot: those committed where they fit, and the others measured here and now.

    :raises EvidenceError: if they cannot be written
    """
    points = {name: _fitting(project, reports, name) or _measured(project, name) for name in project.plots}
    if points:
        write_files(reports / FOLDER, {f"{name}.json": to_json(each) for name, each in points.items()})
    for path in (reports / FOLDER).glob("*.*"):
        if path.stem not in points:
            path.unlink()


def _fitting(project: Project, reports: Path, name: str) -> Points | None:
    try:
        points = load_plots(reports).get(name)
    except EvidenceError:
        return None
    return points if points is not None and points.digest == project.plot_digest(name) else None


def _measured(project: Project, name: str) -> Points:
    pin_threads()
    with redirect_stdout(sys.stderr):
        return Points(project.plots[name](*project.make()), project.plot_digest(name))
