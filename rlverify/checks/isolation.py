"""Runs an action of a check in a process of its own, so that whatever a subject does ends with it.

The process is a fork, because factories are often lambdas, which cannot be sent to another process. It leads a process
group of its own, which is killed when the action has ended: no child of the subject is left behind. Systems without
fork (Windows) run the action in this process.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from rlverify.running.pool import pin_threads
from rlverify.running.runner import Crash, attempt

Result = TypeVar("Result")

CHUNK: Final = 1 << 20
"""Bytes that are read at once."""
PATIENCE: Final = 5.0
"""Seconds that a child has to end by itself after it has sent its result."""
POLL: Final = 1e-3
"""Seconds between two looks at a child that is about to end."""
HEADER: Final = 8
"""Bytes that hold the length of what follows."""


@dataclass(frozen=True)
class Failed:
    """An action that did not return.

    :param reason: one line: the error with its place, the exit code, the signal, or the time limit
    """

    reason: str


def in_process(action: Callable[[], Result], seconds: float) -> Result | Failed:
    """What the action returns, run in a process of its own.

    What it prints goes to the error output. What it returns has to be picklable.

    :param seconds: after which the process and all that it started are killed
    """
    if not hasattr(os, "fork"):
        return _outcome(action)
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _run_and_exit(action, writing)
    os.close(writing)
    status: int | None = None
    try:
        content, in_time = _read(reading, time.monotonic() + seconds)
        status = _ended(child, PATIENCE if in_time else 0.0)
    finally:
        os.close(reading)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
        if status is None:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
    if content:
        found: Result | Failed = pickle.loads(content)  # noqa: S301  # from our own child
        return found
    if not in_time:
        return Failed(f"did not end within {seconds:g} seconds")
    code = os.waitstatus_to_exitcode(status)
    return Failed(f"its process {f'was killed by signal {-code}' if code < 0 else f'ended with exit code {code}'}")


def _run_and_exit(action: Callable[[], object], writing: int) -> None:
    """Be the child: run, send, and end without the cleanup of the parent's objects."""
    try:
        os.setpgid(0, 0)
        os.dup2(2, 1)
        pin_threads()
        found = _pickled(_outcome(action))
        content = len(found).to_bytes(HEADER) + found
        while content:
            content = content[os.write(writing, content[:CHUNK]) :]
        code = 0
    except BaseException:  # noqa: BLE001  # nothing may return into the parent's code
        code = 1
    os._exit(code)


def _ended(child: int, seconds: float) -> int | None:
    """The status of a child that ends by itself within some seconds; None if it does not."""
    end = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done == child:
            return status
        if time.monotonic() >= end:
            return None
        time.sleep(POLL)


def _outcome(action: Callable[[], Result]) -> Result | Failed:
    found = attempt(action)
    return Failed(found.line) if isinstance(found, Crash) else found


def _pickled(found: object) -> bytes:
    content = attempt(lambda: pickle.dumps(found))
    return content if isinstance(content, bytes) else pickle.dumps(Failed(content.line))


def _read(reading: int, end: float) -> tuple[bytes, bool]:
    """What the child sent, and whether it came before ``end``; empty if the child ended without sending."""
    content = b""
    while len(content) < HEADER or len(content) < HEADER + int.from_bytes(content[:HEADER]):
        ready, _, _ = select.select([reading], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            return b"", False
        part = os.read(reading, CHUNK)
        if not part:
            return b"", True
        content += part
    return content[HEADER:], True
