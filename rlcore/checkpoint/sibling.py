"""The temporary file that a write goes through: a name of its own for each writer, and none left behind by the dead."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

if sys.platform != "win32":
    import fcntl

_WRITE_MODE = 0o666
_NAME = 40
"""Characters of the name that are kept, so that with four bytes each the new name is no longer than names may be."""
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


@contextlib.contextmanager
def synced(target: Path, write: Callable[[BinaryIO], object]) -> Iterator[Path]:
    """What ``write`` writes, on disk in the new file ``.<start of the name>.<16 hex digits>.tmp`` beside ``target``.

    It is removed afterwards, unless it was renamed. It is locked meanwhile, so that what a killed writer left is told
    from what another one is writing: the next writer of the same name removes the former.
    """
    _remove_abandoned(target)
    path, descriptor = _created(target)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
            if sys.platform == "win32":  # which renames no open file, and has no lock that closing would end
                file.close()
            yield path
    finally:
        with contextlib.suppress(OSError):  # renamed; or an error before this one is to be reported
            path.unlink()


def _created(target: Path) -> tuple[Path, int]:
    """A new file and its descriptor. A link planted under its name is not followed."""
    while True:
        path = target.with_name(f".{target.name[:_NAME]}.{secrets.token_hex(8)}.tmp")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_LINKS, _WRITE_MODE)
        _lock(descriptor, wait=True)
        if path.exists():
            return path, descriptor
        os.close(descriptor)  # another writer came between creating and locking, and took it for abandoned


def _remove_abandoned(target: Path) -> None:
    """Remove what writers of ``target`` left that were killed, where the system can tell."""
    ours = re.compile(rf"\.{re.escape(target.name[:_NAME])}\.[0-9a-f]{{16}}\.tmp")
    for name in os.listdir(target.parent):  # noqa: PTH208 - ten times as fast in a folder of many files
        if ours.fullmatch(name):
            with contextlib.suppress(OSError):  # renamed meanwhile, or another user's: the write does not need it
                _remove_if_abandoned(target.with_name(name))


def _remove_if_abandoned(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | _NO_LINKS | getattr(os, "O_NONBLOCK", 0))
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode) and _lock(descriptor, wait=False):
            path.unlink()
    finally:
        os.close(descriptor)


def _lock(descriptor: int, *, wait: bool) -> bool:
    """Whether the file is locked now, until its descriptor is closed; never where there are no such locks."""
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True
