"""What the commands about claims take, and what they make of it."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import typer

from rlverify.gating.audit import Level
from rlverify.project.content import Project, open_project
from rlverify.project.settings import ReportPaths
from rlverify.records.claims import Claim
from rlverify.records.errors import HarnessError, UnknownNameError, suggestion


def select_claims(claims: Sequence[Claim], patterns: Sequence[str], areas: Sequence[str]) -> tuple[Claim, ...]:
    """The claims that fit one of the patterns and are in one of the areas, in their order.

    :param patterns: ids or glob patterns such as ``PPO-*``, in any case; none for every id
    :param areas: names of areas, in any case; none for every area
    """
    for pattern in patterns:
        if not _with_id(claims, [pattern]):
            raise UnknownNameError(f"no claim fits {pattern!r}{suggestion(pattern, [claim.id for claim in claims])}")
    for area in areas:
        if not _in_area(claims, [area]):
            known = dict.fromkeys(claim.area for claim in claims)
            hint = suggestion(area, known) or f"; the areas are {', '.join(known)}"
            raise UnknownNameError(f"no claim is in area {area!r}{hint}")
    found = _in_area(_with_id(claims, patterns), areas)
    if not found:
        told = [" or ".join(map(repr, names)) for names in (patterns, areas)]
        raise UnknownNameError(f"no claim fits {told[0]} and is in area {told[1]}")
    return tuple(found)


def _with_id(claims: Sequence[Claim], patterns: Sequence[str]) -> list[Claim]:
    wanted = [pattern.casefold() for pattern in patterns or ["*"]]
    return [claim for claim in claims if any(fnmatchcase(claim.id.casefold(), each) for each in wanted)]


def _in_area(claims: Sequence[Claim], areas: Sequence[str]) -> list[Claim]:
    wanted = {area.casefold() for area in areas}
    return [claim for claim in claims if not wanted or claim.area.casefold() in wanted]


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a machine to read.")]
Reports = Annotated[Path | None, typer.Option(help="Folder of the reports. [default: as in the settings]")]
LevelOption = Annotated[
    Level,
    typer.Option(
        help="full: the figures too, which takes up to an hour and resumes where it ended.",
    ),
]
Revision = Annotated[
    str | None,
    typer.Option(
        "--base",
        metavar="REV",
        help="Git revision to look for changes since. [default: the merge base with the main branch]",
    ),
]
Areas = Annotated[list[str] | None, typer.Option("--area", metavar="AREA", help="Only claims of an area; repeatable.")]
NoWeakening = Annotated[
    bool, typer.Option("--no-weakening", help="Exit with 1 if the change since the base weakens something.")
]
FailFast = Annotated[bool, typer.Option("--fail-fast", help="Stop measuring once a claim is not as expected.")]


def complete_id(context: typer.Context, incomplete: str) -> list[str]:
    """The ids that the shell offers, in the case in which one was begun; none outside a project."""
    try:
        claims = open_project(context.find_root().params.get("project") or Path.cwd()).claims
    except HarnessError:
        return []
    return [claim.id if incomplete == incomplete.upper() else claim.id.lower() for claim in claims]


ClaimId = Annotated[
    str,
    typer.Argument(metavar="ID", help="A claim's id, as `rlverify list` shows it.", autocompletion=complete_id),
]
Patterns = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[ID]...", help="Only these claims: ids or patterns such as 'PPO-*'.", autocompletion=complete_id
    ),
]


def project_of(context: typer.Context) -> Project:
    """The project of a command; it is opened by the first command that needs it, so that ``--help`` works anywhere."""
    if not isinstance(context.obj, Project):
        opened = open_project(context.obj)
        _ = opened.folder, opened.code_places  # which raise a clear error if a package is missing
        context.obj = opened
    project: Project = context.obj
    return project


def selected(project: Project, patterns: Sequence[str] | None, areas: Sequence[str] | None) -> tuple[Claim, ...]:
    """The claims that a command is asked for: all, if neither patterns nor areas are given."""
    return select_claims(project.claims, patterns or (), areas or ())


def chosen_ids(project: Project, patterns: Sequence[str] | None, areas: Sequence[str] | None) -> frozenset[str] | None:
    """The ids of the claims that a command is asked for, or None if neither patterns nor areas are given."""
    if not patterns and not areas:
        return None
    return frozenset(claim.id for claim in selected(project, patterns, areas))


def report_paths(project: Project, reports: Path | None) -> ReportPaths:
    """The folders of evidence and reports: the given one, or that of the settings."""
    return project.paths if reports is None else ReportPaths(reports.absolute())
