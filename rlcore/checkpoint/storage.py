"""Bytes on disk: atomic writing through a temporary file next to the target, and bounded reading."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
import sys
from collections.abc import Callable, Iterator
from io import BufferedIOBase
from pathlib import Path
from typing import BinaryIO

import numpy as np

from rlcore.checkpoint.digest import check_size
from rlcore.checkpoint.refusal import PathOrFile, RefusedError, refusals_name, require_place

if sys.platform != "win32":
    import fcntl

DEFAULT_MAX_BYTES = 2**31
"""Largest file that is read, in bytes (2 GiB): it is held in memory as a whole."""

NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS)
"""What a file system answers on which a file has one name only."""

Write = Callable[[BinaryIO], object]
"""Writes the content of a file that is open for reading and writing."""

_KEPT_OF_NAME = 40  # characters, so that with four bytes each the new name is no longer than names may be
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def write_atomic(path: str | os.PathLike[str], content: bytes) -> None:
    """Put ``content`` into ``path`` so that a reader finds the old file or the new one, whatever interrupts this.

    The bytes go to a temporary file in the same folder, are synced, renamed over ``path``, and the folder is synced. Of
    several writers the last one wins, and none disturbs another. A symbolic link is followed, not replaced.

    :raises CheckpointError: the file cannot be written; an older file is unchanged and the temporary one is removed
    """
    replace_file(path, lambda file: file.write(content))


def replace_file(path: str | os.PathLike[str], write: Write) -> None:
    """Do what :func:`write_atomic` does with the content that ``write`` writes."""
    with refusals_name(path), _os_errors_refused("an older file there is unchanged"):
        _write_through_sibling(Path(path).resolve(), write)


def _write_through_sibling(target: Path, write: Write) -> None:
    with synced_sibling(target, write) as new:
        os.replace(new, target)  # noqa: PTH105 - the order of the system calls is the contract here
    sync_folder(target.parent)


def write_new(path: str | os.PathLike[str], content: bytes) -> bool:
    """Do what :func:`write_atomic` does, but only where there is nothing of that name.

    :return: False if there is; it is unchanged
    :raises CheckpointError: the file cannot be written
    """
    with refusals_name(path), _os_errors_refused("nothing was written"):
        target = Path(path).resolve()
        with synced_sibling(target, lambda file: file.write(content)) as new:
            try:
                _take_name(new, target)
            except FileExistsError:
                return False
        sync_folder(target.parent)
        return True


def _take_name(new: Path, target: Path) -> None:
    """Give a file a second name, or its only one on file systems where a file has no more than one.

    :raises FileExistsError: if the name is taken
    """
    try:
        os.link(new, target)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        try:
            os.replace(new, target)  # noqa: PTH105
        except OSError:
            target.unlink()
            raise


@contextlib.contextmanager
def synced_sibling(target: Path, write: Write) -> Iterator[Path]:
    """What ``write`` writes, on disk in the new file ``.<start of the name>.<16 hex digits>.tmp`` next to ``target``.

    It is removed afterwards, unless it was renamed. It is locked meanwhile, so that the next writer of the same name
    can tell a file that a killed writer left, which it removes, from one that is being written.
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
        path = target.with_name(f".{target.name[:_KEPT_OF_NAME]}.{secrets.token_hex(8)}.tmp")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_FOLLOW, 0o666)
        _lock(descriptor, wait=True)
        if path.exists():
            return path, descriptor
        os.close(descriptor)  # another writer came between creating and locking, and took it for abandoned


def _remove_abandoned(target: Path) -> None:
    """Remove what writers of ``target`` left that were killed, where the system can tell."""
    ours = re.compile(rf"\.{re.escape(target.name[:_KEPT_OF_NAME])}\.[0-9a-f]{{16}}\.tmp")
    for name in os.listdir(target.parent):  # noqa: PTH208 - ten times as fast in a folder of many files
        if ours.fullmatch(name):
            with contextlib.suppress(OSError):  # renamed meanwhile, or another user's: the write does not need it
                _remove_if_abandoned(target.with_name(name))


def _remove_if_abandoned(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | _NO_FOLLOW | getattr(os, "O_NONBLOCK", 0))
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


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the folder's entries; without it a power cut may undo the rename."""
    if os.name == "nt":  # Windows cannot open a folder
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_once(target: BinaryIO | BufferedIOBase, content: bytes) -> None:
    """Give a binary file object its content with one complete ``write`` call."""
    try:
        written = target.write(content)
    except OSError as error:
        raise RefusedError(f"cannot be written ({_os_text(error)})") from error
    if written is not None and written != len(content):
        raise RefusedError(f"only {written} of {len(content)} bytes were written")


def read_content(source: PathOrFile, max_bytes: int = DEFAULT_MAX_BYTES) -> memoryview:
    """Read a regular file (or a binary file object) once, never more than ``max_bytes``, into memory of its own.

    :raises RefusedError: missing, unreadable, not a regular file, larger than ``max_bytes``, or not binary
    """
    require_place(source, "read")
    try:
        if isinstance(source, str | os.PathLike):
            return _read_regular_file(source, max_bytes)
        content = source.read(max_bytes + 1)
    except RefusedError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path, a closed file, a text file
        raise RefusedError(f"cannot be read ({_os_text(error)})") from error
    if not isinstance(content, bytes):
        raise RefusedError(f"reading gave {type(content).__name__}, not bytes; open the file in binary mode")
    check_size(len(content), max_bytes)
    return memoryview(bytearray(content))


def _read_regular_file(path: str | os.PathLike[str], max_bytes: int) -> memoryview:
    # Non-blocking, so that a named pipe without a writer is refused instead of waited for.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise RefusedError("is not a regular file")
        check_size(status.st_size, max_bytes)
        content = np.empty(status.st_size, np.uint8).data  # unlike a bytearray not filled with zeros first
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return content[: file.readinto(content)]
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _os_errors_refused(consequence: str) -> Iterator[None]:
    try:
        yield
    except RefusedError:
        raise
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: a loop of links; ValueError: a NUL in the path
        raise RefusedError(f"cannot be written ({_os_text(error)}); {consequence}") from error


def _os_text(error: Exception) -> str:
    return getattr(error, "strerror", None) or (str(error) if type(error) is ValueError else type(error).__name__)
