"""What several commands take, and what they make of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from rlverify.gating.audit import Level
from rlverify.project.content import Project, open_project
from rlverify.project.settings import ReportPaths

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a machine to read.")]
Reports = Annotated[Path | None, typer.Option(help="Folder of the reports. [default: as in the settings]")]
Jobs = Annotated[int | None, typer.Option(min=1, help="Processes to measure with. [default: one per usable core]")]
Changed = Annotated[
    bool, typer.Option("--changed", help="Measure only what changes since REV can affect; all if that is not certain.")
]
LevelOption = Annotated[
    Level, typer.Option("--level", help="full: the figures too, which takes up to an hour and resumes where it ended.")
]
Afresh = Annotated[bool, typer.Option("--afresh", help="Ignore cached paired runs and measure again.")]
Revision = Annotated[str | None, typer.Argument(metavar="[REV]", help="A Git revision. [default: HEAD]")]
ClaimId = Annotated[str, typer.Argument(metavar="ID", help="A claim's id, as `rlverify list` shows it.")]


def project_of(context: typer.Context) -> Project:
    """The project of a command; it is opened by the first command that needs it, so that ``--help`` works anywhere."""
    if not isinstance(context.obj, Project):
        context.obj = open_project(context.obj)
    project: Project = context.obj
    return project


def report_paths(project: Project, reports: Path | None) -> ReportPaths:
    """The folders of evidence and reports: the given one, or that of the settings."""
    return project.paths if reports is None else ReportPaths(reports.absolute())


def usable_cores() -> int:
    """How many processes run at once without sharing a core."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
