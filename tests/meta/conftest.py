"""The harness is tried on tiny laboratories with known answers, in the folder ``lab``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

LAB = Path(__file__).parent / "lab"
ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(LAB))

from rlverify.project.content import Project  # noqa: E402

Invoke = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(autouse=True)
def _environment_is_restored() -> Iterator[None]:
    """Measuring in this process limits the number of threads."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def toylab() -> Project:
    """Claims that all come out as expected."""
    return Project("toylab")


@pytest.fixture(scope="session")
def troublelab() -> Project:
    """Claims that each go wrong in one way."""
    return Project("troublelab")


@pytest.fixture(scope="session")
def figurelab() -> Project:
    """Figures that are confirmed, refuted, undecided, and refuted because nothing changes; one claim is no figure."""
    return Project("figurelab")


@pytest.fixture(scope="session")
def lab_environment() -> dict[str, str]:
    """An environment in which another process finds the laboratories."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(LAB), str(ROOT)]), "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="session")
def rlverify(lab_environment: dict[str, str]) -> Invoke:
    """Runs the command line in a process of its own, as a user would."""

    def invoke(*arguments: str | Path, **settings: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "rlverify.cli.entry", *map(str, arguments)]
        environment = {**lab_environment, **{k: v for k, v in settings.items() if k != "cwd"}}
        return subprocess.run(
            command, cwd=settings.get("cwd"), env=environment, capture_output=True, text=True, check=False
        )

    return invoke
