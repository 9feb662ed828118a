"""Pickles inside of compressed files and of NumPy's arrays of objects: how to open them and how to make others."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections.abc import Callable
from typing import Final

import numpy as np

from rlverify.records.attempts import Crash, attempt

Wrap = Callable[[bytes], bytes]
COMPRESSIONS: Final[dict[bytes, tuple[Wrap, Wrap]]] = {
    b"\x1f\x8b": (gzip.decompress, gzip.compress),
    b"BZh": (bz2.decompress, bz2.compress),
    b"\xfd7zXZ": (lzma.decompress, lzma.compress),
}
"""By the first bytes of a file: how to open it and how to make one."""


def unwrapped(content: bytes) -> tuple[bytes, Wrap] | None:
    """What a file is wrapped around, and a function that wraps the same around other bytes; None for any other file."""
    for start, (opened, closed) in COMPRESSIONS.items():
        if content.startswith(start):
            inner = attempt(lambda opened=opened: opened(content))  # type: ignore[misc]
            return None if isinstance(inner, Crash) else (inner, closed)
    offset = _pickle_of_array(content)
    return None if offset is None else (content[offset:], lambda other: content[:offset] + other)


def _pickle_of_array(content: bytes) -> int | None:
    """Where the pickle of a ``.npy`` file with objects begins; None for any other file."""
    file = io.BytesIO(content)
    header = attempt(lambda: _header(file))
    if isinstance(header, Crash) or not header.hasobject:
        return None
    return file.tell()


def _header(file: io.BytesIO) -> np.dtype[np.void]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return read(file)[2]
