"""Ends every process that a process of a check has started, also those that moved to a session of their own.

On Linux an orphan becomes a child of the process of the check, and that process is killed if its parent ends. Elsewhere
only the process group is killed.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

DEATH_SIGNAL: Final = 1
CHILD_SUBREAPER: Final = 36
"""Options of ``prctl``."""
SECONDS: Final = 2.0
"""How long killed processes may take to end."""


def adopt_orphans() -> None:
    """Make this process the parent of the orphans below it, and let it be killed if its own parent ends."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            prctl = ctypes.CDLL(None).prctl
            prctl(CHILD_SUBREAPER, 1, 0, 0, 0)
            prctl(DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)


def end_descendants(root: int) -> None:
    """Kill all processes below one, which stays."""
    for process in descendants(root):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)


def end_own_descendants() -> None:
    """Kill all processes below this one, and collect them."""
    until = time.monotonic() + SECONDS
    with suppress(ChildProcessError):
        while time.monotonic() < until:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                end_descendants(os.getpid())
                time.sleep(1e-3)


def descendants(root: int) -> list[int]:
    """The processes below one, by what Linux says about every process; empty elsewhere."""
    below: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            text = (folder / "stat").read_text(errors="replace")
            below.setdefault(int(text.rpartition(")")[2].split()[1]), []).append(int(folder.name))
    found = list(below.get(root, ()))
    for process in found:
        found += below.get(process, ())
    return found
