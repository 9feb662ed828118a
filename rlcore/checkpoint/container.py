"""A dict of tensors and plain Python as one file: written whole or not at all, and read without executing anything."""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import mmap
import os
import secrets
import stat
import struct
import time
from collections.abc import Callable, Iterator
from functools import partial
from io import BufferedIOBase, BytesIO
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import torch
import xxhash
from filelock import FileLock, Timeout

from rlcore.checkpoint import torch_file
from rlcore.checkpoint.torch_file import RefusedError
from rlcore.errors import CheckpointError, RLCoreError, StateError, quoted, warn_caller
from rlcore.types import StateDict

PathOrFile: TypeAlias = "str | PathLike[str] | BinaryIO | BufferedIOBase"

MAX_BYTES = 2**32 - 1
"""Largest file that is read or written, in bytes: it is held in memory, and larger zips have another directory."""
MARK = b"rlcore-xxh3-128:"
"""Starts the zip comment of every file that is written; the hexadecimal digest of all bytes before it follows."""

_ALGORITHMS: dict[bytes, Any] = {MARK: xxhash.xxh3_128, b"rlcore-sha256:": hashlib.sha256}  # the latter is only read
_ABANDONED_S = 3600  # a temporary file that did not change for so long was left by a writer that was killed


def save_container(path_or_file: PathOrFile, payload: StateDict) -> None:
    """Write ``payload`` with an XXH3-128 digest of the whole file in the zip's comment; plain torch.load reads it too.

    Tensors are saved detached, contiguous and from the CPU, without the storage behind a view. A path is written
    by :func:`write_atomic`, a binary file object with one complete ``write``.

    :param payload: dict (or OrderedDict) of tensors, bool, int, float, str, None, lists, such dicts, and tuples of
        plain values
    :raises CheckpointError: a value that cannot be saved (the message has the path of keys to it), or a failed write
    """
    if isinstance(path_or_file, str | PathLike):
        write_atomic(path_or_file, partial(write, payload))
        return
    with refusals_name(path_or_file, "written"):
        buffer = BytesIO()  # not closed: the traceback of a refusal holds views of it, and a close would fail for them
        write(payload, buffer)
        content = buffer.getvalue()
        written = path_or_file.write(content)
        if written is not None and written != len(content):
            raise RefusedError(f"only {written} of {len(content)} bytes were written")


def load_container(
    path_or_file: PathOrFile, *, map_location: str | torch.device = "cpu", require_digest: bool = False
) -> StateDict:
    """Read a file of :func:`save_container`, or of plain torch.save where it holds the same kinds of value.

    Nothing in the file is executed, and memory and time are bounded by the file's size. The file is read once, and
    tensors on the CPU are parts of what was read: while one of them lives, the memory of all does.

    :param map_location: device for the tensors
    :param require_digest: refuse a file without digest, whose damage may go unnoticed, instead of warning
    :raises CheckpointError: whatever is wrong with the file
    """
    payload, has_digest = read_container(path_or_file, map_location, require_digest)
    if not has_digest:
        warn_of_missing_digest(path_or_file)
    return payload


def read_container(
    path_or_file: PathOrFile, map_location: str | torch.device, require_digest: bool
) -> tuple[StateDict, bool]:
    """Do what :func:`load_container` does, and return whether the file has a digest instead of warning."""
    with refusals_name(path_or_file, "read"):
        content = bytes_of(path_or_file)
        has_digest = _check_digest(content)
        payload = decode(content, map_location, is_intact=has_digest)
        if require_digest and not has_digest:
            raise RefusedError("carries no digest, so damage could go unnoticed; save it again, or drop require_digest")
        return payload, has_digest


def warn_of_missing_digest(path_or_file: PathOrFile) -> None:
    """Warn that damage to the file may have gone unnoticed."""
    name = path_of(path_or_file) or "the file object"
    warn_caller(f"{name} carries no digest, so damage may have gone unnoticed; save it again to add one", UserWarning)


def decode(content: memoryview, map_location: str | torch.device = "cpu", *, is_intact: bool = False) -> StateDict:
    """Return the dict in a file's writable content, whose memory its tensors share.

    :param is_intact: a digest of the whole content has been compared
    :raises RefusedError: anything but a dict of tensors and plain Python in the zip format of torch.save
    """
    records = torch_file.read_records(content, is_intact=is_intact)
    return torch_file.plain(torch_file.read_pickle(records, torch.device(map_location)), is_read=True)


def write(payload: StateDict, file: BinaryIO) -> None:
    """Write what :func:`decode` reads to a file that is open for reading and writing, or raise RefusedError."""
    torch.save(torch_file.plain(payload), file)
    try:
        torch_file.read_pickle(torch_file.read_records(_written(file), is_intact=True), torch.device("cpu"))
    except RefusedError as error:
        words = "has too many Python values, or too long ones, to be read again"
        raise RefusedError(f"{words} ({error}); keep numbers in an array or a tensor") from None
    add_digest(file)


def add_digest(file: BinaryIO) -> None:
    """End what torch.save wrote to the file with a digest of it, and of the digest's own length."""
    content = _written(file)
    digest = xxhash.xxh3_128(content[:-2])
    del content  # a buffer grows only while nothing refers to its memory
    comment = struct.pack("<H", len(MARK) + 2 * digest.digest_size) + MARK
    digest.update(comment)
    file.seek(-2, os.SEEK_END)
    file.write(comment + digest.hexdigest().encode())


def _written(file: BinaryIO) -> memoryview:
    file.flush()
    if isinstance(file, BytesIO):
        content = memoryview(bytearray(file.getbuffer()))  # the traceback of an error would keep a view
    else:  # mapped, as the tensors need not be read; copied when written to, as torch takes no memory that is read-only
        content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    _check_size(len(content))
    return content


def _check_digest(content: memoryview) -> bool:
    """Return whether the file carries a digest, having compared it. It shows damage, not who wrote the file."""
    _, comment = torch_file.end_record(content)
    for mark, algorithm in _ALGORITHMS.items():
        if comment.startswith(mark):
            stored = comment.removeprefix(mark)
            if algorithm(content[: -len(stored)]).hexdigest().encode() == stored:
                return True
            raise RefusedError("its digest does not fit its content: the file was damaged or changed")
    if comment:
        raise RefusedError("its zip comment is damaged, or was not written by this project")
    return False


def write_atomic(path: str | PathLike[str], content: bytes | Callable[[BinaryIO], object]) -> None:
    """Put ``content`` into ``path`` so that a reader finds the old file or the new one, whatever interrupts this.

    The bytes go to a temporary file in the same folder, are synced, renamed over ``path``, and the folder is synced. Of
    several writers the last one wins, and none disturbs another. A symbolic link is followed, not replaced. What killed
    writers of ``path`` left is removed once it is an hour old.

    :param content: bytes, or a function that writes them to a file that is open for reading and writing
    :raises CheckpointError: the file cannot be written; an older file is unchanged and the temporary one is removed
    """
    with refusals_name(path, "written"):
        target = Path(path).resolve()
        if target.is_symlink():  # Python 3.13 resolves a loop of links to one of them
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if target.exists() and not target.is_file():
            raise RefusedError("is not a regular file, and is left as it is")
        _write_through_sibling(target, content)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a file that no two processes can hold; the system lets it go when a process ends, a killed one too.

    The file stays: a process that removes it would let a third make a new one while a second holds the old one.

    :raises CheckpointError: another process holds it, or it cannot be made
    """
    if path.parent.exists() and not path.parent.is_dir():
        raise CheckpointError(path.parent, "is not a folder; give another")
    lock = FileLock(path)
    with refusals_name(path, "locked"):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(blocking=False)
        except Timeout as error:
            words = "cannot be used, as another process is training in it; wait for it, or give another folder"
            raise CheckpointError(path.parent, words) from error
    try:
        yield
    finally:
        lock.release()


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
    if os.name != "nt":  # Windows cannot open a folder
        descriptor = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # without it a power cut may undo the rename
        finally:
            os.close(descriptor)


def bytes_of(source: PathOrFile) -> memoryview:
    """Read a regular file or a binary file object once, never more than is allowed, into memory of its own."""
    if not isinstance(source, str | PathLike):
        read = source.read(MAX_BYTES + 1)
        if not isinstance(read, bytes):
            raise RefusedError(f"reading gave {type(read).__name__}, not bytes; open the file in binary mode")
        _check_size(len(read))
        return memoryview(bytearray(read))
    # Non-blocking, so that a named pipe without a writer is refused instead of waited for.
    descriptor = os.open(source, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise RefusedError("is not a regular file")
        _check_size(status.st_size)
        content = np.empty(status.st_size, np.uint8).data  # unlike a bytearray not filled with zeros first
        return content[: file.readinto(content)]


def _check_size(size: int) -> None:
    if size > MAX_BYTES:
        raise RefusedError(f"is larger than {MAX_BYTES} bytes, the most that is read or written")


def path_of(target: PathOrFile) -> str | None:
    """Return the path as text, or None for a file object."""
    return os.fspath(target) if isinstance(target, str | PathLike) else None


@contextlib.contextmanager
def refusals_name(target: PathOrFile, what: str | None = None) -> Iterator[None]:
    """Turn a refusal of content or state into a CheckpointError that names ``target``.

    The cause is kept only where the refusal states one, because the texts of the parsers carry whatever the file holds.

    :param what: "read" or "written", where errors of the system are refusals as well
    """
    try:
        yield
    except CheckpointError as error:
        if error.path is not None:
            raise
        raise CheckpointError(path_of(target), error.reason) from error.__cause__
    except (RefusedError, StateError) as refusal:
        raise CheckpointError(path_of(target), str(refusal)) from refusal.__cause__
    except (OSError, RuntimeError, ValueError) as error:
        # RuntimeError: a loop of links, or torch.save's after an OSError; ValueError: a NUL in the path, a closed file.
        if what is None or isinstance(error, RLCoreError):
            raise
        cause = error.__context__ if isinstance(error.__context__, OSError) else error
        text = getattr(cause, "strerror", None) or f"{type(cause).__name__}: {quoted(str(cause), 200)}"
        unchanged = "; an older file there is unchanged" if what == "written" else ""
        raise CheckpointError(path_of(target), f"cannot be {what} ({text}){unchanged}") from cause


@contextlib.contextmanager
def unusable(field: str) -> Iterator[None]:
    """Turn every unforeseen error into a StateError that names ``field``; errors and warnings of rlcore pass."""
    try:
        yield
    except (RLCoreError, RefusedError, Warning, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # the libraries below raise anything for values of a hostile file
        reason = f"{type(error).__name__}: {quoted(str(error), 200)}"
        raise StateError(
            f"{field} cannot be used ({reason}); it is damaged, or of another version or object"
        ) from error
