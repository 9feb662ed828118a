"""Writes the settings of a project into a folder, for tests that need a variation of one of the tiny projects."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ParamSpec

from rlverify.kill_matrix.plan import MatrixPlan
from rlverify.project.content import Project, open_project
from rlverify.records.claims import Claim
from rlverify.records.matrix import FaultPlan
from rlverify.records.measured import Run
from rlverify.running.runner import TIME_LIMIT, run_task, tasks_of

PROJECTS = Path(__file__).parent / "projects"
TOY_TESTS = """
from toyproject.target import Average, clip


def test_restore():
    assert Average.restored({"count": 2, "total": 3}).count == 2


def test_clip():
    assert clip(-5, 0, 3) == 0


def test_count():
    average = Average()
    average.add(7)
    assert average.count == 1
"""

Parameters = ParamSpec("Parameters")


def once_in_a_process(build: Callable[Parameters, Path]) -> Callable[Parameters, Path]:
    """A function that returns the folder of its first call: mutation testing runs pytest in thousands of forks."""
    built: list[Path] = []

    @functools.wraps(build)
    def first(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Path:
        if not built:
            built.append(build(*args, **kwargs))
        return built[0]

    return first


def write_settings(folder: Path, content: str, **settings: object) -> Path:
    """A ``pyproject.toml`` in a folder, which it returns.

    :param content: the content package: one of the tiny projects, or a package in the folder itself
    :param settings: other settings, a path as ``Path``
    """
    chosen = {"content": content, "under_test": [content], "pythonpath": [".", str(PROJECTS)], **settings}
    lines = [f"{key} = {json.dumps(value, default=str)}\n" for key, value in chosen.items()]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text("[tool.rlverify]\n" + "".join(lines), encoding="utf-8")
    return folder


def write_toy_tests(folder: Path) -> Path:
    """The tests that the claims of the toy project name, in a folder, which it returns."""
    (folder / "tests").mkdir(parents=True, exist_ok=True)
    (folder / "tests" / "test_toy.py").write_text(TOY_TESTS, encoding="utf-8")
    return folder


def project_in(folder: Path, content: str = "toyproject", **settings: object) -> Project:
    """The project of a folder, after writing its settings."""
    return open_project(write_settings(folder, content, **settings))


def planned(matrix_plan: MatrixPlan) -> dict[tuple[str, str], FaultPlan]:
    return {(plan.fault, plan.kind): plan for plan in matrix_plan.plans}


def toy_catalogue(folder: Path, changes: Mapping[str, str]) -> Path:
    """A copy of the catalogue of the toy project with each text replaced by another."""
    folder.mkdir(parents=True)
    found = set()
    for path in (PROJECTS / "toyproject" / "catalogue").iterdir():
        text = path.read_text(encoding="utf-8")
        for old, new in changes.items():
            found |= {old} if old in text else set()
            text = text.replace(old, new)
        (folder / path.name).write_text(text, encoding="utf-8")
    assert found == set(changes)
    return folder


def toy_plan(folder: Path, changes: Mapping[str, str]) -> MatrixPlan:
    """The matrix plan of the toy project with another catalogue."""
    return MatrixPlan(project_in(folder, catalogue=toy_catalogue(folder / "catalogue", changes)))


def toy_with_catalogue(folder: Path, *changes: tuple[str, str]) -> Path:
    """The toy project in a folder, which it returns, after replacing texts in its catalogue."""
    catalogue = toy_catalogue(folder / "catalogue", dict(changes))
    return write_toy_tests(write_settings(folder, "toyproject", catalogue=catalogue))


def run_here(project: Project, claim: Claim, seeds: Sequence[int], *, limit: float = TIME_LIMIT) -> tuple[Run, ...]:
    """All runs of one claim in this process, with the seeds given; outside the main thread there is no time limit."""
    return tuple(run_task(task) for task in tasks_of(project, claim, seeds, limit))
