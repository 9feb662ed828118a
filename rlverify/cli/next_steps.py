"""What to look at after a claim was reproduced: the code of the bug, the probe, and the section of the report."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlverify.project.content import Project
from rlverify.records.claims import Claim
from rlverify.reporting.report_data import ReportData, anchor


def next_steps(project: Project, claim: Claim, folder: Path) -> list[tuple[str, str]]:
    """(what, where) for a claim that a probe measures.

    :param folder: what the paths are relative to
    """
    steps = []
    if claim.fault is not None:
        fault = project.fault(claim.fault)
        steps += [("bug", _place(fault.replacement, folder)), ("replaces", fault.target)]
    if claim.documented_fix is not None:
        steps.append(("fix", _place(project.fault(claim.documented_fix).replacement, folder)))
    steps.append(("probe", _place(project.probe(claim.probe), folder)))
    page = project.settings.reports / ReportData((), pages=project.pages).home(claim)
    if page.is_file():
        steps.append(("report", f"{_relative(page, folder)}#{anchor(claim.id)}"))
    return steps


def _place(function: Callable[..., Any], folder: Path) -> str:
    """File and line of a function, below its decorators; its module where it has no source."""
    function = inspect.unwrap(function)
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        return function.__module__
    start = next((number for number, line in enumerate(lines) if line.lstrip().startswith(("def ", "async def "))), 0)
    return f"{_relative(Path(inspect.getfile(function)), folder)}:{first + start}"


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()
