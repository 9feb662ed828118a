"""Test sessions are forked from a process that has imported everything, know nothing of each other, and all end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rlverify.kill_matrix import sessions
from rlverify.kill_matrix.sessions import Session
from tests.engine.project_folders import PROJECTS, write_settings
from tests.support.processes import is_running, wait_until

ROOT = Path(__file__).parents[3]
PROCESSES = """
import os, sys

def test_processes():
    print(f"processes {os.getppid()} {os.getpid()}", file=sys.__stderr__)
"""
INI = f"[pytest]\npythonpath = {PROJECTS}\n"
MARKS = """
from toyproject import target

def test_mark():
    assert not hasattr(target, "mark")
    target.mark = True
"""
ENDLESS = """
import subprocess, sys
from pathlib import Path

def test_endless():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path("child.part").write_text(str(child.pid))
    Path("child.part").rename("child")
    child.wait()
"""
ASKS = """
import os, sys
from pathlib import Path
from rlverify.kill_matrix.sessions import run_session

run_session(["-q", "test_endless.py"], root=Path.cwd(), environment=dict(os.environ), limit=600)
"""

Run = Callable[..., Session]


@pytest.fixture
def environment(project_environment: dict[str, str]) -> dict[str, str]:
    """One in which no plugin slows the sessions down."""
    kept = {name: value for name, value in project_environment.items() if not name.startswith(("PYTEST_", "COV"))}
    return {**kept, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a project whose content package is that of the toy project."""
    write_settings(tmp_path, "toyproject")
    (tmp_path / "pytest.ini").write_text(INI, encoding="utf-8")
    return tmp_path


@pytest.fixture
def run(folder: Path, environment: dict[str, str]) -> Iterator[Run]:
    """Runs a test file, given by its text, in a session."""

    def run_text(text: str, *, limit: float = 60.0, **variables: str) -> Session:
        (folder / "test_given.py").write_text(text, encoding="utf-8")
        arguments = ["-q", "-p", "no:cacheprovider", "-s", "test_given.py"]
        given = {**environment, **variables}
        return sessions.run_session(arguments, root=folder, environment=given, limit=limit)

    yield run_text
    sessions.close()


def processes(session: Session) -> list[str]:
    (line,) = (line for line in session.output.splitlines() if "processes" in line)
    return line.split()[-2:]


def test_sessions_of_one_setting_are_forked_from_one_process(run: Run) -> None:
    first, second = processes(run(PROCESSES)), processes(run(PROCESSES))
    assert first[0] == second[0] != str(os.getpid())
    assert first[1] != second[1]


def test_sessions_are_forked_where_every_warning_is_an_error(run: Run, folder: Path) -> None:
    """Pytest warns of a plugin that was imported before it could rewrite its assertions."""
    (folder / "pytest.ini").write_text(f"{INI}filterwarnings = error\naddopts = -p rlverify\n", encoding="utf-8")
    session = run(PROCESSES, PYTEST_DISABLE_PLUGIN_AUTOLOAD="")
    assert session.exit_code == 0
    assert processes(session)[0] != str(os.getpid())


@pytest.mark.slow
def test_sessions_of_this_repository_are_forked(project_environment: dict[str, str]) -> None:
    kept = {name: value for name, value in project_environment.items() if not name.startswith(("PYTEST_", "COV"))}
    server = sessions.ForkServer(ROOT, kept)
    session = server.run(["--version"], 120.0)
    server.close()
    assert session is not None
    assert (session.exit_code, "pytest" in session.output) == (0, True)


def test_another_environment_is_another_setting(run: Run) -> None:
    assert processes(run(PROCESSES))[0] != processes(run(PROCESSES, OTHER="1"))[0]


def test_what_is_under_test_is_imported_before_the_session(run: Run, folder: Path) -> None:
    (folder / "conftest.py").write_text("import sys\n\nassert 'toyproject.target' in sys.modules\n", encoding="utf-8")
    assert run(PROCESSES).exit_code == 0


def test_a_session_leaves_no_trace_in_the_next(run: Run) -> None:
    assert [run(MARKS).exit_code for _ in range(2)] == [0, 0]


def test_the_exit_code_is_that_of_pytest_or_of_the_signal(run: Run) -> None:
    assert run("def test_failing():\n    assert False\n").exit_code == 1
    assert run("import os\n\ndef test_dying():\n    os.kill(os.getpid(), 9)\n").exit_code == -signal.SIGKILL
    assert run(PROCESSES).exit_code == 0


@pytest.mark.parametrize("can_fork", [True, False])
def test_when_the_time_is_up_the_session_ends(can_fork: bool, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "CAN_FORK", can_fork)
    assert run(PROCESSES).exit_code == 0  # so that the limit is not over before a session is forked
    with pytest.raises(TimeoutError):
        run("def test_endless():\n    while True:\n        pass\n", limit=0.3)
    assert run(PROCESSES).exit_code == 0


def test_when_the_time_is_up_what_the_session_started_ends_too(run: Run, folder: Path) -> None:
    limit = 0.4
    while not (folder / "child").is_file():
        limit *= 2
        with pytest.raises(TimeoutError):
            run(ENDLESS, limit=limit)
    wait_until(lambda: not is_running(int((folder / "child").read_text())))


def test_nothing_outlives_whoever_asked(folder: Path, environment: dict[str, str]) -> None:
    (folder / "test_endless.py").write_text(ENDLESS, encoding="utf-8")
    asking = subprocess.Popen([sys.executable, "-c", ASKS], cwd=folder, env=environment)
    try:
        wait_until((folder / "child").is_file)
    finally:
        asking.kill()
        asking.wait()
    wait_until(lambda: not is_running(int((folder / "child").read_text())))


def test_without_fork_each_session_is_a_process_of_its_own(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "CAN_FORK", False)
    assert processes(run(PROCESSES))[0] == str(os.getpid())
    assert [run(MARKS).exit_code for _ in range(2)] == [0, 0]


def test_sessions_of_two_threads_run_beside_each_other(folder: Path, environment: dict[str, str]) -> None:
    """Each waits for the other; one after the other they would wait until their time is up."""
    for own, other in (("a", "b"), ("b", "a")):
        (folder / f"test_{own}.py").write_text(
            "import time\nfrom pathlib import Path\n\ndef test_meet():\n"
            f"    Path('{own}').touch()\n    while not Path('{other}').exists():\n        time.sleep(0.01)\n",
            encoding="utf-8",
        )

    def meet(name: str) -> int:
        arguments = ["-q", "-p", "no:cacheprovider", f"test_{name}.py"]
        return sessions.run_session(arguments, root=folder, environment=environment, limit=60.0).exit_code

    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(meet, "ab")] == [0, 0]
    sessions.close()
    assert sessions._servers == {}
