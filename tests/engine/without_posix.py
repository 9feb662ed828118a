"""Runs the command line without what Windows lacks: ``python -m tests.engine.without_posix COMMAND...``."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import warnings
from types import SimpleNamespace
from typing import Any

MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "tty")
CALLS = ("fork", "killpg", "setpgid", "getpgrp", "getpgid", "setsid", "waitid", "mkfifo")
SIGNALS = ("SIGKILL", "SIGALRM", "SIGHUP", "SIGXFSZ", "setitimer", "ITIMER_REAL", "pthread_sigmask", "SIG_BLOCK")


class Absent:
    """Finds none of the modules; the standard library has imported what it needs of them."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:  # noqa: ARG002
        if name in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def main() -> int:
    multiprocessing.set_start_method("spawn")
    for name in MODULES:
        sys.modules.pop(name, None)
    finders: list[Any] = sys.meta_path
    finders.insert(0, Absent())
    for name in CALLS:
        delattr(os, name)
    warnings.filterwarnings(
        "ignore", "only soft file lock", UserWarning
    )  # where fcntl is absent and this is no Windows
    from rlverify.cli.entry import main as command
    from rlverify.records import process

    # The standard library needs them to start processes here.
    setattr(process, "signal", SimpleNamespace(**{n: v for n, v in vars(signal).items() if n not in SIGNALS}))  # noqa: B010
    return command()


if __name__ == "__main__":
    sys.exit(main())
