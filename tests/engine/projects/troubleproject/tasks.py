"""Tasks for worker processes."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

LONG = 12.0


def act(task: str) -> str:
    """Do what the task says; then its result is the task and the process."""
    if task == "exit":
        os._exit(0)
    if task == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if task == "raise":
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - the traceback of a crash on purpose
        raise ZeroDivisionError
    if task == "fork and exit":
        if os.fork() == 0:  # this process has the pipes of the worker, and outlives it
            _end_late()
        os._exit(0)
    if task == "leave a thread":
        threading.Thread(target=_end_late).start()
    return f"{task} {os.getpid()}"


def _end_late() -> None:
    time.sleep(LONG)
    Path(os.environ["TROUBLEPROJECT_LEFT"]).touch()
