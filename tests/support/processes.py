"""Watching processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def is_running(pid: int) -> bool:
    """Whether there is such a process; one that has ended and that nobody has waited for does not count."""
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return not _is_zombie(Path("/proc", str(pid), "stat"))
    return False


def _is_zombie(status: Path) -> bool:
    try:
        return status.read_text().rpartition(") ")[2].startswith("Z")
    except FileNotFoundError:  # it has just ended, or there is no such folder on this system
        return False


def commands_of(variable: str) -> list[str]:
    """The command lines of all processes that have ``NAME=VALUE`` in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if variable.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def wait_until(holds: Callable[[], bool], seconds: float = 300) -> None:
    """Wait for something that comes for certain; the limit only ends a test that has failed."""
    limit = time.monotonic() + seconds
    while not holds() and time.monotonic() < limit:
        time.sleep(0.05)
    assert holds()
