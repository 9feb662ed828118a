"""Whether tests kill a fault: they run in a session of their own, with the fault planted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

Fate: TypeAlias = Literal["killed", "survived", "unreached", "error"]

PASSED, FAILED = 0, 1


@dataclass(frozen=True)
class Kill:
    """What became of a fault in a test session.

    :param fate: ``killed`` if a test failed, ``survived`` if all passed, ``unreached`` if the fault never ran (whether
        or not a test failed), ``error`` if the session could not be run to its end
    :param executions: how often the fault ran
    :param failed: ids of the tests that failed
    :param output: all that the session printed
    """

    fate: Fate
    executions: int
    failed: tuple[str, ...]
    output: str


def run_under_fault(
    fault: str, tests: Sequence[str], *, root: Path, null: bool = False, package: str = "verification"
) -> Kill:
    """Run tests with a fault planted, in a process of their own.

    :param tests: ids or files, relative to ``root``
    :param null: plant the null fault of the same member instead
    :param package: the package that has the faults
    """
    option = "--plant-null" if null else "--plant"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "verification.pytest_plugin",
        option,
        fault,
        "--plant-from",
        package,
    ]
    command += ["-p", "no:cacheprovider", "-p", "no:randomly", "-q", "-rfE", "--tb=short", "--color=no", *tests]
    environment = {**os.environ, "COLUMNS": "400"}  # the summary cuts ids to the width of the terminal
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    return _read(done.returncode, done.stdout + done.stderr)


def _read(code: int, output: str) -> Kill:
    counts = [int(count) for count in re.findall(r"^planted \S+: executed (\d+) times$", output, re.MULTILINE)]
    failed = tuple(re.findall(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE))
    executions = sum(counts)
    if code not in (PASSED, FAILED) or not counts:
        return Kill("error", executions, failed, output)
    if executions == 0:
        return Kill("unreached", executions, failed, output)
    return Kill("killed" if code == FAILED else "survived", executions, failed, output)
