"""What files would import if they were unpickled, read from their instructions without loading them."""

from __future__ import annotations

import base64
import binascii
import bz2
import gzip
import io
import json
import lzma
import pickletools
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from rlverify.pickles.pickle_imports import content_of
from rlverify.records.attempts import Crash, attempt

PROTOCOL: Final = b"\x80"
"""How every pickle since protocol 2 begins."""
SERIALIZED: Final = ":serialized:"
"""The key under which Stable-Baselines3 keeps a pickle inside of JSON."""


@dataclass(frozen=True)
class Pickle:
    """A pickle that was found.

    :param imported: ``module.name`` of everything that it imports when it is loaded
    """

    place: str
    imported: tuple[str, ...]


def pickles_in(path: Path) -> list[Pickle]:
    """Every pickle in a file: the file itself, members of a zip archive, fields of JSON, arrays of objects."""
    return list(_found(path.name, path.read_bytes()))


def _found(place: str, content: bytes) -> Iterator[Pickle]:
    if zipfile.is_zipfile(io.BytesIO(content)):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for name in archive.namelist():
                yield from _found(f"{place}: {name}", archive.read(name))
        return
    wrapped = unwrapped(content)
    if wrapped is not None:
        yield from _found(place, wrapped[0])
        return
    fields = json_of(content)
    if fields is not None:
        yield from _in_json(place, fields)
        return
    imported = imports(content)
    if imported is not None:
        yield Pickle(place, imported)


def json_of(content: bytes) -> Any:
    """What JSON holds; None for anything else."""
    try:
        return json.loads(content)
    except ValueError:  # of JSON, and of its encoding
        return None


def parts_of_json(node: Any) -> Iterable[tuple[Any, Any]]:
    """Keys or indices, and values; none of a number or text."""
    return node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()


def _in_json(place: str, node: Any) -> Iterator[Pickle]:
    for key, value in parts_of_json(node):
        if key != SERIALIZED or not isinstance(value, str):
            yield from _in_json(f"{place}: {key}", value)
            continue
        try:
            imported = imports(base64.b64decode(value))
        except binascii.Error:
            continue
        if imported is not None:
            yield Pickle(place, imported)


def imports(content: bytes) -> tuple[str, ...] | None:
    """What a pickle imports, each name once; None if the bytes are no pickle."""
    found = content_of(io.BytesIO(content))
    names = tuple(map(str, found.imports))
    if found.problem is not None:
        return names if any(each.is_called for each in found.imports) else None
    return names if names or _is_plain_pickle(content) else None


def _is_plain_pickle(content: bytes) -> bool:
    """Whether bytes that import nothing are a pickle; a text such as "2.9.2" takes from an empty stack."""
    if content.startswith(PROTOCOL):
        return True
    try:
        pickletools.dis(content, out=io.StringIO())
    except (ValueError, IndexError):
        return False
    return True


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


WEIGHTS_ONLY: Final = (
    "collections.OrderedDict",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_parameter",
    "torch.Size",
    "torch.device",
    "torch.serialization._get_layout",
    "torch.storage.UntypedStorage",
)
"""What ``torch.load(weights_only=True)`` imports for tensors, parameters and plain containers."""
STORAGES: Final = ("torch.", "Storage")
"""Beginning and end of the names of typed storages."""
DATA: Final = (
    "_codecs.encode",
    "builtins.bytearray",
    "builtins.complex",
    "builtins.frozenset",
    "builtins.range",
    "builtins.set",
    "builtins.slice",
    "collections.deque",
    "numpy.dtype",
    "numpy.ndarray",
)
"""Builders of plain data."""
NUMPY: Final = ("._reconstruct", ".scalar", "._frombuffer")
"""Ends of the names by which NumPy builds arrays and numbers."""


def is_for_weights(name: str) -> bool:
    """Whether ``torch.load(weights_only=True)`` imports a name."""
    return name in WEIGHTS_ONLY or (name.startswith(STORAGES[0]) and name.endswith(STORAGES[1]))


def is_data(name: str) -> bool:
    """Whether a name is that of a builder of numbers, containers, arrays, tensors or random generators."""
    if name.startswith("numpy.random._"):  # builders of random generators
        return True
    return name in DATA or is_for_weights(name) or (name.startswith("numpy.") and name.endswith(NUMPY))
