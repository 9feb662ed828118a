"""A dict of tensors and plain Python as one file: what is written loads again, and reading executes nothing."""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
from functools import partial
from io import BytesIO
from typing import Any, BinaryIO

import torch
import xxhash

from rlcore.checkpoint import storage, torch_file, values
from rlcore.checkpoint.refusal import PathOrFile, RefusedError, path_of, quoted, refusals_name, require_place
from rlcore.types import StateDict
from rlcore.warn import warn_caller

MARK = b"rlcore-xxh3-128:"
"""Starts the zip comment of every file that is written; the hexadecimal digest of all bytes before it follows."""

_ALGORITHMS: dict[bytes, Any] = {MARK: xxhash.xxh3_128, b"rlcore-sha256:": hashlib.sha256}  # the latter is only read


def save_container(path_or_file: PathOrFile, payload: StateDict) -> None:
    """Write ``payload`` with an XXH3-128 digest of the whole file in the zip's comment; plain torch.load reads it too.

    Tensors are saved detached, contiguous and from the CPU, without the storage behind a view. A path is written
    atomically (:func:`rlcore.checkpoint.storage.write_atomic`), a binary file object with one complete ``write``.

    :param payload: dict (or OrderedDict) of tensors, bool, int, float, str, None, lists, such dicts, and tuples of
        plain values
    :raises CheckpointError: a value that cannot be saved (the message has the path of keys to it), or a failed write
    """
    require_place(path_or_file, "write")
    if isinstance(path_or_file, str | os.PathLike):
        storage.write_atomic(path_or_file, partial(write, payload))
        return
    with refusals_name(path_or_file), storage.os_errors_refused("written"):
        buffer = BytesIO()  # not closed: the traceback of a refusal holds views of it, and a close would fail for them
        write(payload, buffer)
        content = buffer.getvalue()
        written = path_or_file.write(content)
        if written is not None and written != len(content):
            raise RefusedError(f"only {written} of {len(content)} bytes were written")


def load_container(
    path_or_file: PathOrFile,
    *,
    map_location: str | torch.device = "cpu",
    require_digest: bool = False,
    max_bytes: int = storage.DEFAULT_MAX_BYTES,
) -> StateDict:
    """Read a file of :func:`save_container`, or of plain torch.save where it holds the same kinds of value.

    Nothing in the file is executed, and memory and time are bounded by the file's size. The file is read once, and
    tensors on the CPU are parts of what was read: while one of them lives, the memory of all does.

    :param map_location: device for the tensors
    :param require_digest: refuse a file without digest, whose damage may go unnoticed, instead of warning
    :param max_bytes: refuse a larger file before reading it
    :raises CheckpointError: whatever is wrong with the file
    """
    payload, has_digest = read_container(
        path_or_file, map_location=map_location, require_digest=require_digest, max_bytes=max_bytes
    )
    if not has_digest:
        warn_of_missing_digest(path_or_file)
    return payload


def read_container(
    path_or_file: PathOrFile, *, map_location: str | torch.device, require_digest: bool, max_bytes: int
) -> tuple[StateDict, bool]:
    """Do what :func:`load_container` does, and return whether the file has a digest instead of warning."""
    with refusals_name(path_or_file):
        content = storage.read_content(path_or_file, max_bytes)
        has_digest = check_digest(content)
        if require_digest and not has_digest:
            raise RefusedError("carries no digest, so damage could go unnoticed; save it again, or drop require_digest")
        return decode(content, map_location, is_intact=has_digest), has_digest


def warn_of_missing_digest(path_or_file: PathOrFile) -> None:
    """Warn that damage to the file may have gone unnoticed."""
    name = path_of(path_or_file) or "the file object"
    warn_caller(f"{name} carries no digest, so damage may have gone unnoticed; save it again to add one", UserWarning)


def write(payload: StateDict, file: BinaryIO) -> None:
    """Write what :func:`decode` reads to a file that is open for reading and writing.

    :raises RefusedError: a value that cannot be saved, or more tensors or values than are read
    """
    torch.save(values.plain(payload), file)
    torch_file.read_pickle(torch_file.read_records(_written(file), is_intact=True), torch.device("cpu"))
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
        content = file.getbuffer()
    else:  # mapped, as the tensors need not be read; copied when written to, as torch takes no memory that is read-only
        content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    storage.check_size(len(content), storage.DEFAULT_MAX_BYTES)
    return content


def decode(content: memoryview, map_location: str | torch.device = "cpu", *, is_intact: bool = False) -> StateDict:
    """Return the dict in a file's content, whose memory its tensors share.

    :param content: writable
    :param is_intact: a digest of the whole content has been compared
    :raises RefusedError: anything but a dict of tensors and plain Python in the zip format of torch.save
    """
    try:
        device = torch.device(map_location)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # AssertionError: a torch without CUDA
        raise RefusedError(f"cannot be loaded onto {quoted(str(map_location))} ({type(error).__name__})") from None
    if device.type == "meta":
        raise RefusedError("cannot be loaded onto 'meta', which holds no data")
    payload = torch_file.read_pickle(torch_file.read_records(content, is_intact=is_intact), device)
    values.check_values(payload)
    if not isinstance(payload, dict):
        raise RefusedError(f"holds a {type(payload).__name__}, not a dict")
    return payload


def check_digest(content: memoryview) -> bool:
    """Return whether the file carries a digest, having compared it with the content.

    A digest is integrity, not authenticity: whoever writes a file can also write its digest.

    :raises RefusedError: no end of a zip file, a foreign comment there, or a digest that does not fit
    """
    _, comment = torch_file.end_record(content)
    for mark, algorithm in _ALGORITHMS.items():
        if comment.startswith(mark):
            stored = comment.removeprefix(mark)
            if algorithm(content[: -len(stored)]).hexdigest().encode() == stored:
                return True
            name = mark[len("rlcore-") : -1].decode().upper()
            raise RefusedError(f"its {name} digest does not fit its content: the file was damaged or changed")
    if comment:
        raise RefusedError("its zip comment is damaged, or was not written by this project")
    return False
