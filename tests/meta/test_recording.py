"""What a run executed and read is recorded: in any thread, of nested functions, and without what other runs left."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rlverify.records.code_records import Executed
from tests.meta.project_folders import write_settings

SOURCE = """
import functools
import pathlib
import subprocess
import sys
import threading

FACTOR = (lambda: 2)()

def at_import():
    return 3

THREE = at_import()

def plain():
    return helper()

def helper():
    return THREE

def nested():
    def inner():
        return [each for each in range(3)]
    return inner()

class Box:
    size = max(each for each in (1, 2))

    @property
    def half(self):
        return self.size / 2

    @staticmethod
    def made():
        return Box()

@functools.cache
def once():
    return plain()

def in_a_thread():
    thread = threading.Thread(target=helper)
    thread.start()
    thread.join()

def reads():
    return (pathlib.Path(__file__).parent / "data.txt").read_text()

def writes():
    (pathlib.Path(__file__).parent / "log.txt").write_text("")

def fails():
    import traceback, warnings
    try:
        raise ValueError
    except ValueError:
        traceback.format_exc()

def starts_a_process():
    subprocess.run([sys.executable, "-c", ""], check=True)

def dies():
    import os, signal
    os.kill(os.getpid(), signal.SIGKILL)
"""

PROGRAM = """
import importlib, json, sys
from dataclasses import asdict
from pathlib import Path
from rlverify.project.content import open_project
from rlverify.running.recording import run_recorded
project = open_project(Path(sys.argv[1]))
module = importlib.import_module("recordedproject.code")
for name in sys.argv[2:]:
    result, executed = run_recorded(getattr(module, name), project)
    print(json.dumps(asdict(executed)))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    package = tmp_path / "recordedproject"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "code.py").write_text(SOURCE)
    (package / "data.txt").write_text("1")
    return write_settings(tmp_path, "recordedproject", pythonpath=["."])


def run_in(folder: Path, *names: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, str(folder), *names]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def executed(folder: Path, *names: str) -> list[Executed]:
    done = run_in(folder, *names)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return [Executed(tuple(each["functions"]), tuple(each["files"]), each["unseen"]) for each in found]


def names_of(found: Executed) -> set[str]:
    return {name.removeprefix("recordedproject.code:") for name in found.functions}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("plain", {"plain", "helper"}),
        ("nested", {"nested"}),
        ("in_a_thread", {"in_a_thread", "helper"}),
        ("fails", {"fails"}),
    ],
)
def test_every_function_that_runs_is_recorded_and_no_other(folder: Path, name: str, expected: set[str]) -> None:
    (found,) = executed(folder, name)
    assert (names_of(found), found.files, found.unseen) == (expected, (), False)


def test_what_a_cache_holds_is_recorded_again(folder: Path) -> None:
    """The second run finds no result of the first."""
    first, second = executed(folder, "once", "once")
    assert names_of(first) == names_of(second) == {"once", "plain", "helper"}


def test_files_of_the_project_that_are_read_are_recorded_and_written_ones_are_not(folder: Path) -> None:
    reads, writes = executed(folder, "reads", "writes")
    assert (reads.files, writes.files) == (("recordedproject/data.txt",), ())


def test_source_that_a_compiler_reads_is_no_data_whether_its_cache_is_empty_or_not(folder: Path) -> None:
    (folder / "recordedproject" / "kernel.py").write_text(
        "from numba import njit\n\n@njit('int64(int64)', cache=True)\ndef double(x):\n    return 2 * x\n"
    )
    with (folder / "recordedproject" / "code.py").open("a") as stream:
        stream.write("\ndef compiles():\n    from recordedproject import kernel\n    return kernel.double(1)\n")
    cold = executed(folder, "compiles")
    assert list((folder / "recordedproject" / "__pycache__").glob("kernel.double*.nbc"))
    assert cold == executed(folder, "compiles")
    assert cold[0].files == ()


def test_a_process_that_a_run_starts_makes_the_record_incomplete(folder: Path) -> None:
    (found,) = executed(folder, "starts_a_process")
    assert found.unseen


def test_a_run_that_kills_its_process_kills_the_worker_in_the_same_way(folder: Path) -> None:
    assert run_in(folder, "dies").returncode == -signal.SIGKILL


def test_what_imports_execute_and_read_is_known(folder: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from rlverify.project.content import open_project; "
        "from rlverify.running.recording import executed_by_imports as f; "
        "found = f(open_project(Path(sys.argv[1]))); print(*found.functions); print(*found.files)"
    )
    (folder / "rate.txt").write_text("2")
    (folder / "recordedproject" / "__init__.py").write_text(
        "import pathlib\nimport tools\nfrom recordedproject import code\n"
        "RATE = pathlib.Path(__file__).parents[1].joinpath('rate.txt').read_text()\n"
    )
    (folder / "tools.py").write_text("ONE = 1\n")
    done = subprocess.run([sys.executable, "-c", f"if __name__ == '__main__': exec({code!r})", str(folder)],
                          capture_output=True, text=True, check=True)  # fmt: skip
    functions, files = done.stdout.splitlines()
    names = {name for name in functions.split() if not name.endswith((">", "Box"))}
    assert (names, files) == ({"recordedproject.code:at_import"}, "rate.txt tools.py")
