"""Runs what a Markdown page shows: its blocks in their order, in one folder, as a reader would.

A mark above a block, ``<!-- MARK -->``, names the file that the block is written to, or how its commands run: ``in the
repository``, ``exit 1``. Other Python blocks are run, and so is every line of a console block that starts with ``$``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.repository_copy import ROOT

BLOCK = re.compile(r"^(?:<!-- ([^\n]*) -->\n)?```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"[\w./-]+\.\w+")
NOT_RUN = {
    "pip install": "it would change the environment of the tests",
    "make ": "its targets are CI's",
    "ray ": "a cluster of two machines",
    "rlverify audit --executor ray": "a cluster of two machines",
}
HIDDEN = ("PYTHONHOME", "VIRTUAL_ENV", "PYTEST", "COV_", "COVERAGE_", "COLUMNS")


def page_text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def commands_of(text: str) -> Iterator[tuple[str, str]]:
    """The commands of a console block, each with the output that is shown below it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def run_page(name: str, folder: Path, python: str = sys.executable, path: str = str(ROOT)) -> None:
    """Run all blocks of a page in a folder, with a Python and its ``PYTHONPATH``."""
    programs = folder / ".programs"
    programs.mkdir()
    for program, arguments in {"rlverify": "-m rlverify", "pytest": "-m pytest", "python": ""}.items():
        (programs / program).write_text(f'#!/bin/sh\nexec "{python}" {arguments} "$@"\n', encoding="utf-8")
        (programs / program).chmod(0o755)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(HIDDEN)}
    search = f"{programs}{os.pathsep}{os.environ['PATH']}"
    environment = {**kept, "PATH": search, "PYTHONPATH": path, "PYTEST_ADDOPTS": "-p no:cacheprovider"}
    for number, (mark, language, text) in enumerate(BLOCK.findall(page_text(name))):
        file, shown = FILE.fullmatch(mark), text if language == "console" else ""
        if language == "python" and not file:
            file, shown = FILE.fullmatch(f"example_{number}.py"), f"$ python example_{number}.py\n"
        if file:
            (folder / file[0]).parent.mkdir(parents=True, exist_ok=True)
            (folder / file[0]).write_text(text, encoding="utf-8")
        for command, output in commands_of(shown):
            if not command.startswith(tuple(NOT_RUN)):
                cwd = ROOT if "in the repository" in mark else folder
                code, printed = _run(command, cwd, environment)
                assert code == int((re.findall(r"exit (\d+)", mark) or "0")[0]), f"{command}: exit {code}\n{printed}"
                assert_printed(output, printed, command)


def _run(command: str, folder: Path, environment: dict[str, str]) -> tuple[int, str]:
    done = subprocess.run(command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout if done.stdout else done.stderr


def assert_printed(shown: str, output: str, command: str) -> None:
    """Assert that a program printed what a page shows: `...` is any text of a line, alone on a line any lines."""
    pattern = re.sub(r"^\\\.\\\.\\\.\\?\n", "(?:.*\n)*?", re.escape(shown), flags=re.MULTILINE)
    pattern = pattern.replace(r"\.\.\.", ".*").replace("\\\n", "\n")
    assert not shown or re.fullmatch(pattern, output), f"{command}: not printed:\n{shown}\nbut\n{output}"
