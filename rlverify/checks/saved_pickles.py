"""What files would import if they were unpickled, read from their instructions without loading them."""

from __future__ import annotations

import base64
import binascii
import io
import json
import pickletools
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rlverify.checks.wrapped_pickles import unwrapped
from rlverify.pickles.pickle_imports import content_of

PROTOCOL: Final = b"\x80"
"""How every pickle since protocol 2 begins."""
SERIALIZED: Final = ":serialized:"
"""The key under which Stable-Baselines3 keeps a pickle inside of JSON."""


@dataclass(frozen=True)
class Pickle:
    """A pickle that was found.

    :param place: file, and where in it
    :param imported: ``module.name`` of everything that it imports when it is loaded
    """

    place: str
    imported: tuple[str, ...]


def pickles_in(path: Path) -> list[Pickle]:
    """Every pickle in a file: the file itself, members of a zip archive, fields of JSON, arrays of objects.

    Files can be compressed with gzip, bzip2 or xz.
    """
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
    """What a pickle imports, each name once; None if the bytes are no pickle.

    A broken pickle counts if something would be called before it breaks.
    """
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
