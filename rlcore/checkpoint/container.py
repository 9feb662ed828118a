"""A dict of tensors and plain Python as one file: what is written loads again, and reading executes nothing."""

from __future__ import annotations

import io
import pickle

import torch

from rlcore.checkpoint import archive, outline, storage, values
from rlcore.checkpoint.refusal import PathOrFile, RefusedError, path_of, quoted, refusals_name
from rlcore.types import StateDict
from rlcore.warn import warn_caller

_TORCH_ERRORS = (
    *(RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError),
    *(ArithmeticError, EOFError, OSError, MemoryError, pickle.UnpicklingError),
)


def save_container(path_or_file: PathOrFile, payload: StateDict) -> None:
    """Write ``payload`` with a SHA-256 over the whole file in the zip's comment; plain torch.load reads it too.

    Tensors are saved detached, contiguous and from the CPU, without the storage behind a view. A path is written
    atomically (:func:`rlcore.checkpoint.storage.write_atomic`), a binary file object with one complete ``write``.

    :param payload: dict (or OrderedDict) of tensors, bool, int, float, str, None, lists, such dicts, and tuples of
        plain values
    :raises CheckpointError: a value that cannot be saved (the message has the path of keys to it), or a failed write
    """
    with refusals_name(path_or_file):
        content = encode(payload)
    storage.write_content(path_or_file, content)


def load_container(
    path_or_file: PathOrFile,
    *,
    map_location: str | torch.device = "cpu",
    require_digest: bool = False,
    max_bytes: int = storage.DEFAULT_MAX_BYTES,
) -> StateDict:
    """Read a file of :func:`save_container`, or of plain torch.save where it holds the same kinds of value.

    Nothing in the file is executed, and memory and time are bounded by the file's size.

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
        has_digest = storage.verify_digest(content)
        if require_digest and not has_digest:
            raise RefusedError("carries no digest, so damage could go unnoticed; save it again, or drop require_digest")
        return decode(content, map_location, is_intact=has_digest), has_digest


def warn_of_missing_digest(path_or_file: PathOrFile) -> None:
    """Warn that damage to the file may have gone unnoticed."""
    name = path_of(path_or_file) or "the file object"
    warn_caller(
        f"{name} carries no digest, so damage may have gone unnoticed; save it again to add one",
        UserWarning,
    )


def encode(payload: StateDict) -> bytes:
    """Return the content of a file that :func:`decode` reads.

    :raises RefusedError: a value that cannot be saved
    """
    buffer = io.BytesIO()
    torch.save(values.plain(payload), buffer)
    storage.append_digest(buffer)
    content = buffer.getvalue()  # which is the buffer's own memory
    storage.check_size(len(content), storage.DEFAULT_MAX_BYTES)
    check_content(content, is_intact=True)
    return content


def decode(content: bytes, map_location: str | torch.device = "cpu", *, is_intact: bool = False) -> StateDict:
    """Return the dict in a file's content, checked before torch sees it and once more after.

    :param is_intact: whether a digest of the whole content has been compared
    :raises RefusedError: anything but a dict of tensors and plain Python in the zip format of torch.save
    """
    check_content(content, is_intact=is_intact)
    payload = _load_tensors(content, map_location)
    if not isinstance(payload, dict):
        raise RefusedError(f"holds a {type(payload).__name__}, not a dict")
    for place, tensor in values.tensors_in(payload, torch.Tensor):
        _check_loaded(place, tensor)
    return payload


def check_content(content: bytes, *, is_intact: bool = False) -> None:
    """Refuse a content that torch.load must not be given.

    :param is_intact: see :func:`decode`
    """
    outline.check_pickle(archive.read_records(content, is_intact=is_intact))


def _load_tensors(content: bytes, map_location: str | torch.device) -> object:
    try:
        return torch.load(io.BytesIO(content), map_location=map_location, weights_only=True)
    except _TORCH_ERRORS as error:
        # Its text may carry the file's own and advises to switch the protection off, so only the kind is passed on.
        kind = type(error).__name__
    raise RefusedError(f"torch could not load it onto {quoted(str(map_location))} ({kind})")


def _check_loaded(place: str, tensor: torch.Tensor) -> None:
    if (
        type(tensor) is not torch.Tensor
        or tensor.layout != torch.strided
        or tensor.dtype not in values.DTYPES.values()
        or tensor.device.type == "meta"
        or not tensor.is_contiguous()
    ):
        raise RefusedError(f"{place} is not a dense, contiguous tensor with data")
