"""A dict of tensors and plain Python as one file: what is written loads again, and reading executes nothing."""

from __future__ import annotations

import mmap
import os
from functools import partial
from io import BytesIO
from typing import BinaryIO

import torch

from rlcore.checkpoint import archive, outline, storage, values
from rlcore.checkpoint.digest import DigestWriter, verify_digest
from rlcore.checkpoint.refusal import PathOrFile, RefusedError, path_of, quoted, refusals_name, require_place
from rlcore.types import StateDict
from rlcore.warn import warn_caller


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
        storage.replace_file(path_or_file, partial(write, payload))
        return
    with refusals_name(path_or_file):
        buffer = BytesIO()  # not closed: the traceback of a refusal holds views of it, and a close would fail for them
        write(payload, buffer)
        storage.write_once(path_or_file, buffer.getvalue())


def load_container(
    path_or_file: PathOrFile,
    *,
    map_location: str | torch.device = "cpu",
    require_digest: bool = False,
    max_bytes: int = storage.DEFAULT_MAX_BYTES,
) -> StateDict:
    """Read a file of :func:`save_container`, or of plain torch.save where it holds the same kinds of value.

    Nothing in the file is executed, and memory and time are bounded by the file's size. The file is read once, and
    tensors on the CPU are parts of what was read: while one of them lives, the memory of all does. A file with a
    SHA-256 digest, as older versions wrote them, is checked too.

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
        has_digest = verify_digest(content)
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
    writer = DigestWriter(file, storage.DEFAULT_MAX_BYTES)
    torch.save(values.plain(payload), writer)  # type: ignore[arg-type]  # which only writes and flushes
    writer.finish()
    if isinstance(file, BytesIO):
        decode(file.getbuffer(), is_intact=True)
        return
    file.flush()
    # Mapped, as the tensors need not be read. Copied on being written to, which nothing does: torch
    # makes no tensor over read-only memory.
    decode(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)), is_intact=True)


def decode(content: memoryview, map_location: str | torch.device = "cpu", *, is_intact: bool = False) -> StateDict:
    """Return the dict in a file's content, whose memory its tensors share.

    :param content: writable
    :param is_intact: whether a digest of the whole content has been compared
    :raises RefusedError: anything but a dict of tensors and plain Python in the zip format of torch.save
    """
    try:
        device = torch.device(map_location)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # AssertionError: a torch without CUDA
        raise RefusedError(f"cannot be loaded onto {quoted(str(map_location))} ({type(error).__name__})") from None
    if device.type == "meta":
        raise RefusedError("cannot be loaded onto 'meta', which holds no data")
    payload = outline.read_pickle(archive.read_records(content, is_intact=is_intact), device)
    if not isinstance(payload, dict):
        raise RefusedError(f"holds a {type(payload).__name__}, not a dict")
    return payload
