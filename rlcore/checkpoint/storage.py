"""Bytes on disk: atomic writing through a temporary file next to the target, and bounded reading."""

from __future__ import annotations

import contextlib
import glob
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from rlcore.checkpoint.refusal import PathOrFile, RefusedError, refusals_name, require_place

DEFAULT_MAX_BYTES = 2**31
"""Largest file that is read, in bytes (2 GiB): it is held in memory as a whole."""

_ABANDONED_S = 3600  # a temporary file that did not change for so long was left by a writer that was killed


def write_atomic(path: str | os.PathLike[str], content: bytes | Callable[[BinaryIO], object]) -> None:
    """Put ``content`` into ``path`` so that a reader finds the old file or the new one, whatever interrupts this.

    The bytes go to a temporary file in the same folder, are synced, renamed over ``path``, and the folder is synced. Of
    several writers the last one wins, and none disturbs another. A symbolic link is followed, not replaced. What killed
    writers of ``path`` left is removed once it is an hour old.

    :param content: bytes, or a function that writes them to a file that is open for reading and writing
    :raises CheckpointError: the file cannot be written; an older file is unchanged and the temporary one is removed
    """
    with refusals_name(path), os_errors_refused("written"):
        target = Path(path).resolve()
        if target.exists() and not target.is_file():
            raise RefusedError("is not a regular file, and is left as it is")
        _write_through_sibling(target, content)


def _write_through_sibling(target: Path, content: bytes | Callable[[BinaryIO], object]) -> None:
    start = f".{target.name[:40]}."  # with four bytes for each character no name is too long
    for left in target.parent.glob(f"{glob.escape(start)}{'[0-9a-f]' * 16}.tmp"):
        with contextlib.suppress(OSError):  # removed meanwhile, or another user's: the write does not need it
            if time.time() - left.lstat().st_mtime > _ABANDONED_S:
                left.unlink()
    new = target.with_name(f"{start}{secrets.token_hex(8)}.tmp")
    try:
        with new.open("x+b") as file:  # exclusively, so that a link planted under this name is not followed
            file.write(content) if isinstance(content, bytes) else content(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, target)  # noqa: PTH105 - the order of the system calls is the contract here
    finally:
        with contextlib.suppress(OSError):  # renamed; or an error before this one is to be reported
            new.unlink()
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the folder's entries; without it a power cut may undo the rename."""
    if os.name != "nt":  # Windows cannot open a folder
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_content(source: PathOrFile, max_bytes: int = DEFAULT_MAX_BYTES) -> memoryview:
    """Read a regular file (or a binary file object) once, never more than ``max_bytes``, into memory of its own.

    :raises RefusedError: missing, unreadable, not a regular file, larger than ``max_bytes``, or not binary
    """
    require_place(source, "read")
    with os_errors_refused("read"):
        if isinstance(source, str | os.PathLike):
            return _read_regular_file(source, max_bytes)
        content = source.read(max_bytes + 1)
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


def check_size(size: int, max_bytes: int) -> None:
    """Refuse what is larger than ``max_bytes``."""
    if size > max_bytes:
        raise RefusedError(f"is larger than {max_bytes} bytes, the most that is read or written (max_bytes)")


@contextlib.contextmanager
def os_errors_refused(what: str) -> Iterator[None]:
    """Turn an error of the system into a RefusedError: ``cannot be written (No space left on device)``."""
    try:
        yield
    except RefusedError:
        raise
    except (OSError, RuntimeError, ValueError) as error:
        # RuntimeError: a loop of links, or torch.save's after an OSError; ValueError: a NUL in the path, a closed file.
        cause = error.__context__ if isinstance(error.__context__, OSError) else error
        text = getattr(cause, "strerror", None) or (str(cause) if type(cause) is ValueError else type(cause).__name__)
        unchanged = "; an older file there is unchanged" if what == "written" else ""
        raise RefusedError(f"cannot be {what} ({text}){unchanged}") from cause
