"""Of two processes that measure into one folder, the second waits for the first."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rlverify.evidence.files import alone_in
from tests.engine.project_folders import PROJECTS
from tests.support.processes import wait_until

FIGUREPROJECT = PROJECTS / "figureproject"
SECONDS = 60.0
"""After which a test gives up waiting for another process."""
FULL = ["audit", "--update", "--level", "full", "--jobs", "1"]
OTHERS = [
    FULL,
    *(
        pytest.param([*words.split(), "--jobs", "1"], marks=pytest.mark.slow)
        for words in ("audit", "gate", "matrix", "pilot FIG-GAIN --seeds 2", "reproduce FIG-GAIN --all")
    ),
]
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    return tmp_path / "reports"


@pytest.fixture
def start(reports: Path, project_environment: dict[str, str]) -> Iterator[Start]:
    """Starts a command of the project of figures; what still runs at the end of the test is killed."""
    started: list[subprocess.Popen[str]] = []

    def command(*arguments: str, **settings: str) -> subprocess.Popen[str]:
        program = [sys.executable, "-m", "rlverify.cli.entry", "--project", str(FIGUREPROJECT), *arguments]
        environment = {**project_environment, **settings}
        errors = (reports.parent / f"errors-{len(started)}").open("w")
        with errors:
            started.append(
                subprocess.Popen(
                    [*program, "--reports", str(reports)],
                    env=environment,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    text=True,
                )
            )
        return started[-1]

    yield command
    for process in started:
        process.kill()
        process.wait()


def _holding(start: Start, folder: Path) -> subprocess.Popen[str]:
    """An audit that measures until the file ``hold`` is gone."""
    (folder / "hold").touch()
    log = folder / "log"
    first = start(*FULL, FIGURELAB_HOLD=str(folder / "hold"), FIGURELAB_LOG=str(log))
    wait_until(log.exists)
    return first


def _lines(folder: Path, number: int) -> list[str]:
    errors = (folder / f"errors-{number}").read_text().splitlines()
    return [line for line in errors if line.startswith("rlverify: ")]


@pytest.mark.parametrize("arguments", OTHERS, ids=" ".join)
def test_a_second_process_says_so_and_waits(arguments: list[str], start: Start, tmp_path: Path, reports: Path) -> None:
    first = _holding(start, tmp_path)
    second = start(*arguments, FIGURELAB_LOG=str(tmp_path / "log"))
    wait_until(lambda: bool(_lines(tmp_path, 1)))
    assert _lines(tmp_path, 1) == [
        f"rlverify: another rlverify process is measuring in {reports.parent / '.rlverify'}; waiting for it to end"
    ]
    assert second.poll() is None
    (tmp_path / "hold").unlink()
    assert first.wait(SECONDS) == 0
    second.wait(SECONDS)
    assert _lines(tmp_path, 0) == []
    runs = [line.rpartition(" ")[0] for line in (tmp_path / "log").read_text().splitlines()]
    assert len(set(runs)) == len(runs), "the second measured what the first was about to keep"


def test_the_lock_of_a_killed_process_is_free(start: Start, tmp_path: Path) -> None:
    first = _holding(start, tmp_path)
    first.kill()
    first.wait()
    assert start(*FULL).wait(SECONDS) == 0
    assert _lines(tmp_path, 1) == []


def test_reading_commands_do_not_wait(start: Start, tmp_path: Path) -> None:
    _holding(start, tmp_path)
    assert start("report", "--check").wait(SECONDS) == 2
    assert start("reproduce", "FIG-GAIN").wait(SECONDS) == 0
    assert _lines(tmp_path, 2) == []


def test_another_folder_is_another_lock(tmp_path: Path) -> None:
    waits: list[str] = []
    with alone_in(tmp_path / "a", waits.append), alone_in(tmp_path / "b", waits.append):
        assert (tmp_path / "a" / ".gitignore").read_text() == "*\n"
    with alone_in(tmp_path / "a", waits.append):
        assert waits == []
