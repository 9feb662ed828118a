"""A process that imports what is under test once and forks a child for every test session that it is asked for.

``python -m rlverify.kill_matrix.fork_server`` is started in a project's folder. It reads one request a line (JSON:
``arguments`` of pytest, files for ``stdout`` and ``stderr``), and answers each with a line: the child's exit code, or
the negative number of the signal that ended it. It ends when its stdin ends, together with a session that still runs.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import rlverify
from rlverify.project.content import Project, open_project

POLL = 0.01
IMPORTED_LATE = ("torch._dynamo", "hypothesis")
"""What a core that trains and its tests import after a session has begun: the first optimizer, the conftest."""


class _Imports:
    """Imports while pytest's own import hook is in place, so that a session finds nothing that it would warn of."""

    def __init__(self, project: Project) -> None:
        self.project = project

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self) -> int:
        """In place of a session."""
        _ = self.project.faults  # which imports them
        if "torch" in sys.modules:
            for name in IMPORTED_LATE:
                with suppress(ImportError):  # a project may test without it
                    importlib.import_module(name)
        return 0


def main() -> int:
    """Serve until stdin ends; in a child, the exit code of its session."""
    answers = os.dup(1)
    os.dup2(2, 1)
    # Otherwise pytest warns that this package was imported too early to rewrite its assertions.
    rlverify.__doc__ = f"{rlverify.__doc__}\nPYTEST_DONT_REWRITE"
    code = int(pytest.main(["--noconftest"], plugins=[_Imports(open_project(Path.cwd()))]))
    if code != 0:
        return code
    gc.freeze()  # no collection in a child walks, and so copies, what it shares with this process
    while line := sys.stdin.buffer.readline():
        child = os.fork()
        if child == 0:
            os.close(answers)
            return _run_session(json.loads(line))
        os.write(answers, b"%d\n" % _exit_code_of(child))
    return 0


def _run_session(request: Mapping[str, Any]) -> int:
    writing = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    streams = ((os.devnull, os.O_RDONLY), (request["stdout"], writing), (request["stderr"], writing))
    for descriptor, (path, flags) in enumerate(streams):
        opened = os.open(path, flags)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.argv = ["pytest", *request["arguments"]]
    return int(pytest.main(request["arguments"]))


def _exit_code_of(child: int) -> int:
    """Wait for the child; when stdin ends before it, end with everything that was started here."""
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if select.select([0], [], [], POLL)[0]:
            os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
