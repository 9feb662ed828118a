"""One process at a time measures into a working folder; a second one waits."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rlverify.evidence.files import prepare_working_folder

LOCK = "lock"


@contextmanager
def alone_in(folder: Path, on_wait: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of a working folder, which is made where it is missing; the lock ends with the process.

    :param on_wait: called with a sentence if another process has the lock, before this one waits for it
    :raises EvidenceError: if the folder cannot be written
    """
    prepare_working_folder(folder)
    with (folder / LOCK).open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            on_wait(f"another rlverify process (pid {holder}) is measuring in {folder}; waiting for it to end")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
