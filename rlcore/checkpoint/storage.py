"""Bytes on disk: atomic writing, bounded reading, and the digest that shows damage."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

from rlcore.checkpoint import sibling
from rlcore.checkpoint.refusal import PathOrFile, RefusedError, refusals_name, require_place

DEFAULT_MAX_BYTES = 2**31
"""Largest file that is read, in bytes (2 GiB): it is held in memory as a whole."""

DIGEST_MARK = b"rlcore-sha256:"
END_RECORD = struct.Struct("<4s4H2LH")
END_SIGNATURE = b"PK\x05\x06"
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS)
"""What a file system answers on which a file has one name only."""
_COMMENT_LENGTH = len(DIGEST_MARK) + 2 * hashlib.sha256().digest_size


def write_atomic(path: str | os.PathLike[str], content: bytes) -> None:
    """Put ``content`` into ``path`` so that a reader finds the old file or the new one, whatever interrupts this.

    The bytes go to a sibling of a name of its own (:mod:`rlcore.checkpoint.sibling`), are synced, renamed over
    ``path``, and the folder is synced. Of several writers the last one wins, and none disturbs another. A symbolic
    link is followed, not replaced.

    :raises CheckpointError: the file cannot be written; an older file is unchanged and the sibling is removed
    """
    with refusals_name(path), _os_errors_refused("an older file there is unchanged"):
        _write_through_sibling(Path(path).resolve(), content)


def _write_through_sibling(target: Path, content: bytes) -> None:
    with sibling.synced(target, content) as new:
        os.replace(new, target)  # noqa: PTH105 - the order of the system calls is the contract here
    sync_folder(target.parent)


def write_new(path: str | os.PathLike[str], content: bytes) -> bool:
    """Do what :func:`write_atomic` does, but only where there is nothing of that name.

    :return: False if there is; it is unchanged
    :raises CheckpointError: the file cannot be written
    """
    with refusals_name(path), _os_errors_refused("nothing was written"):
        target = Path(path).resolve()
        with sibling.synced(target, content) as new:
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
def _os_errors_refused(consequence: str) -> Iterator[None]:
    try:
        yield
    except RefusedError:
        raise
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: a loop of links; ValueError: a NUL in the path
        raise RefusedError(f"cannot be written ({_os_text(error)}); {consequence}") from error


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the folder's entries; without it a power cut may undo the rename."""
    if os.name == "nt":  # Windows cannot open a folder
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_content(target: PathOrFile, content: bytes) -> None:
    """Write atomically to a path, or with one complete ``write`` call to a binary file object."""
    require_place(target, "write")
    if isinstance(target, str | os.PathLike):
        write_atomic(target, content)
        return
    with refusals_name(target):
        try:
            written = target.write(content)
        except OSError as error:
            raise RefusedError(f"cannot be written ({_os_text(error)})") from error
        if written is not None and written != len(content):
            raise RefusedError(f"only {written} of {len(content)} bytes were written")


def read_content(source: PathOrFile, max_bytes: int = DEFAULT_MAX_BYTES) -> bytes:
    """Read a regular file (or a binary file object) once, never more than ``max_bytes``.

    :raises RefusedError: missing, unreadable, not a regular file, larger than ``max_bytes``, or not binary
    """
    require_place(source, "read")
    try:
        if isinstance(source, str | os.PathLike):
            content = _read_regular_file(source, max_bytes)
        else:
            content = source.read(max_bytes + 1)
    except RefusedError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path, a closed file, a text file
        raise RefusedError(f"cannot be read ({_os_text(error)})") from error
    if not isinstance(content, bytes):
        raise RefusedError(f"reading gave {type(content).__name__}, not bytes; open the file in binary mode")
    check_size(len(content), max_bytes)
    return content


def _read_regular_file(path: str | os.PathLike[str], max_bytes: int) -> bytes:
    # Non-blocking, so that a named pipe without a writer is refused instead of waited for.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise RefusedError("is not a regular file")
        check_size(status.st_size, max_bytes)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(status.st_size)  # whatever is asked for, memory is taken for all of it
    finally:
        os.close(descriptor)


def check_size(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise RefusedError(f"is larger than {max_bytes} bytes, the most that is read or written (max_bytes)")


def append_digest(archive: io.BytesIO) -> None:
    """Give a zip file without comment one, which is the SHA-256 of everything before the digest itself.

    The comment's length is hashed with the rest, so the comment can be neither cut off nor lengthened unseen.
    """
    archive.seek(-2, io.SEEK_END)
    archive.write(struct.pack("<H", _COMMENT_LENGTH) + DIGEST_MARK)
    with archive.getbuffer() as hashed:
        digest = hashlib.sha256(hashed).hexdigest()
    archive.write(digest.encode())


def verify_digest(content: bytes) -> bool:
    """Say whether the file carries a digest, having compared it with the content.

    A digest is integrity, not authenticity: whoever writes a file can also write its digest.

    :raises RefusedError: no end of a zip file, a foreign comment there, or a digest that does not fit
    """
    if end_record_position(content) + END_RECORD.size == len(content):
        return False
    hex_length = 2 * hashlib.sha256().digest_size
    hashed, stored = memoryview(content)[:-hex_length], content[-hex_length:]
    if bytes(hashed[-len(DIGEST_MARK) :]) != DIGEST_MARK:
        raise RefusedError("its zip comment is damaged, or was not written by this project")
    if hashlib.sha256(hashed).hexdigest().encode() != stored:
        raise RefusedError("its SHA-256 digest does not fit its content: the file was damaged or changed after saving")
    return True


def end_record_position(content: bytes) -> int:
    """Return where the zip end record starts, which leaves room for our digest or for nothing.

    :raises RefusedError: no end record at either place: truncated, or not a file of this kind
    """
    for comment_length in (0, _COMMENT_LENGTH):
        position = len(content) - END_RECORD.size - comment_length
        if position >= 0 and content.startswith(END_SIGNATURE, position):
            (*_, stored_length) = END_RECORD.unpack_from(content, position)
            if stored_length == comment_length:
                return position
    raise RefusedError("is truncated, or not a file that torch.save wrote in its zip format")


def _os_text(error: Exception) -> str:
    return getattr(error, "strerror", None) or (str(error) if type(error) is ValueError else type(error).__name__)
