"""The engine is tried on tiny projects with known answers, in the folder ``projects``."""

from __future__ import annotations

import locale
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rlverify.cli.app import run
from rlverify.project.content import Project, open_project
from tests.engine.checkouts import figures_committed
from tests.engine.in_process import measured_here, rlverify_here
from tests.engine.project_folders import once_in_a_process, write_settings, write_toy_tests

PROJECTS = Path(__file__).parent / "projects"
ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(PROJECTS))  # test modules import the code of the tiny projects

Command = Callable[..., tuple[int, str, str]]
Invoke = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(autouse=True)
def _environment_is_restored() -> Iterator[None]:
    """Measuring in this process limits the number of threads, opening a project changes where modules are found."""
    before, path = dict(os.environ), list(sys.path)
    os.environ.pop("COLUMNS", None)  # a worker of xdist has a width of its own
    yield
    sys.path[:] = path
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def ascii_locale() -> Iterator[None]:
    """A file that is opened without naming an encoding is ASCII here, as it is Latin-1 or else on some machines."""
    before = locale.setlocale(locale.LC_CTYPE)
    locale.setlocale(locale.LC_CTYPE, "C")
    yield
    locale.setlocale(locale.LC_CTYPE, before)


@pytest.fixture(scope="session")
def toyproject() -> Project:
    """Claims that all come out as expected."""
    return open_project(PROJECTS / "toyproject")


@pytest.fixture(scope="session")
def troubleproject() -> Project:
    """Claims that each go wrong in one way."""
    return open_project(PROJECTS / "troubleproject")


@pytest.fixture(scope="session")
def figureproject() -> Project:
    """Figures that are confirmed, refuted, undecided, and refuted because nothing changes; one claim is no figure."""
    return open_project(PROJECTS / "figureproject")


@pytest.fixture(scope="session")
@once_in_a_process
def auditedproject(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the toy project with its tests, evidence, kill matrix and reports; treat as read-only."""
    folder = write_toy_tests(write_settings(tmp_path_factory.mktemp("audited"), "toyproject"))
    for command in ("audit", "matrix"):
        done = rlverify_here(command, "--update", cwd=folder)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="session")
@once_in_a_process
def figures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Git checkout of the project with figures, all measured; treat as read-only."""
    return figures_committed(tmp_path_factory.mktemp("figures"))


@pytest.fixture
def toy(capsys: pytest.CaptureFixture[str], auditedproject: Path) -> Command:
    """Runs one command on the toy project, or on another, in this process: exit code, output, errors."""

    def command(*arguments: str | Path, project: Path = auditedproject) -> tuple[int, str, str]:
        code = run(["--project", str(project), *measured_here(arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


@pytest.fixture(scope="session")
def project_environment() -> dict[str, str]:
    """An environment in which another process measures with one thread."""
    return {**{name: value for name, value in os.environ.items() if name != "COLUMNS"}, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="session")
def rlverify_process(project_environment: dict[str, str]) -> Invoke:
    """Runs the command line in a process of its own, which costs a second; most tests use `rlverify_here`."""

    def invoke(*arguments: str | Path, **settings: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "rlverify.cli.entry", *map(str, arguments)]
        environment = {**project_environment, **{k: v for k, v in settings.items() if k != "cwd"}}
        return subprocess.run(
            command, cwd=settings.get("cwd"), env=environment, capture_output=True, text=True, check=False
        )

    return invoke
