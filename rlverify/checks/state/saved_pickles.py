"""What files would import if they were unpickled, read from their instructions without loading them."""

from __future__ import annotations

import base64
import bz2
import copy
import gzip
import io
import json
import lzma
import pickletools
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial, reduce
from operator import getitem
from pathlib import Path
from typing import Any, Final

import numpy as np

from rlverify.pickles import content_of
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


Put = Callable[[bytes], bytes]


def pickles_in(path: Path) -> list[Pickle]:
    """Every pickle in a file: the file itself, members of a zip archive, fields of JSON, arrays of objects."""
    return [Pickle(place, imported) for place, imported, _ in embedded(path.name, path.read_bytes())]


def embedded(place: str, content: bytes) -> Iterator[tuple[str, tuple[str, ...], Put]]:
    """Yield each pickle in a file: its place, what it imports, and what makes the file with other bytes instead."""
    if zipfile.is_zipfile(io.BytesIO(content)):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = {each: archive.read(each) for each in archive.infolist()}
        for member, own in members.items():
            for inner, imported, put in embedded(f"{place}: {member.filename}", own):
                yield inner, imported, partial(_zipped, members, member, put)
    elif (wrapped := unwrapped(content)) is not None:
        for inner, imported, put in embedded(place, wrapped[0]):
            yield inner, imported, partial(_wrapped, wrapped[1], put)
    elif not isinstance(fields := attempt(lambda: json.loads(content)), Crash):
        yield from _in_json(place, fields, fields, ())
    elif (imports_of_all := imports(content)) is not None:
        yield place, imports_of_all, lambda other: other


def _zipped(members: dict[zipfile.ZipInfo, bytes], changed: zipfile.ZipInfo, put: Put, other: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for member, content in members.items():
            archive.writestr(member.filename, put(other) if member is changed else content, member.compress_type)
    return buffer.getvalue()


def _wrapped(wrap: Put, put: Put, other: bytes) -> bytes:
    return wrap(put(other))


def _in_json(place: str, fields: Any, node: Any, path: tuple[Any, ...]) -> Iterator[tuple[str, tuple[str, ...], Put]]:
    for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        if key != SERIALIZED or not isinstance(value, str):
            yield from _in_json(f"{place}: {key}", fields, value, (*path, key))
            continue
        pickled = attempt(partial(base64.b64decode, value))
        imported = None if isinstance(pickled, Crash) else imports(pickled)
        if imported is not None:
            yield place, imported, partial(_with_field, fields, (*path, key))


def _with_field(fields: Any, path: tuple[Any, ...], other: bytes) -> bytes:
    changed = copy.deepcopy(fields)
    reduce(getitem, path[:-1], changed)[path[-1]] = base64.b64encode(other).decode()
    return json.dumps(changed).encode()


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


COMPRESSIONS: Final[dict[bytes, tuple[Put, Put]]] = {
    b"\x1f\x8b": (gzip.decompress, gzip.compress),
    b"BZh": (bz2.decompress, bz2.compress),
    b"\xfd7zXZ": (lzma.decompress, lzma.compress),
}
"""By the first bytes of a file: how to open it and how to make one."""


def unwrapped(content: bytes) -> tuple[bytes, Put] | None:
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
