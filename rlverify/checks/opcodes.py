"""What files would import if they were unpickled, read from their opcodes without loading them."""

from __future__ import annotations

import base64
import binascii
import io
import json
import pickletools
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

UNKNOWN: Final = "a name that is computed"
TEXTS: Final = ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE", "STRING", "BINSTRING", "SHORT_BINSTRING")
CALLS: Final = ("REDUCE", "OBJ", "NEWOBJ", "NEWOBJ_EX", "INST", "BUILD")
STORES: Final = ("PUT", "BINPUT", "LONG_BINPUT")
LOADS: Final = ("GET", "BINGET", "LONG_BINGET")
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
    """Every pickle in a file: the file itself, members of a zip archive, and fields of JSON."""
    return list(_found(path.name, path.read_bytes()))


def _found(place: str, content: bytes) -> Iterator[Pickle]:
    if zipfile.is_zipfile(io.BytesIO(content)):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for name in archive.namelist():
                yield from _found(f"{place}: {name}", archive.read(name))
        return
    fields = _json(content)
    if fields is not None:
        yield from _in_json(place, fields)
        return
    imported = imports(content)
    if imported is not None:
        yield Pickle(place, imported)


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:  # of JSON, and of its encoding
        return None


def _in_json(place: str, node: Any) -> Iterator[Pickle]:
    parts = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in parts:
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
    reader = _Reader()
    try:
        for opcode, argument, _ in pickletools.genops(content):
            reader.read(opcode.name, argument, pushes=bool(opcode.stack_after))
        if not reader.imported and not content.startswith(PROTOCOL):
            pickletools.dis(content, out=io.StringIO())  # raises for texts such as "2.9.2", which use an empty stack
    except (ValueError, IndexError):  # what genops raises where the bytes are none or a broken pickle
        reader.ended = False
    if reader.ended or (reader.imported and reader.called):
        return tuple(dict.fromkeys(reader.imported))
    return None


@dataclass
class _Reader:
    """Follows the texts on the stack and in the memory of a pickle, as far as names need it.

    :param texts: what was pushed, None where it is no text
    """

    texts: list[str | None] = field(default_factory=list)
    memory: dict[int, str | None] = field(default_factory=dict)
    imported: list[str] = field(default_factory=list)
    called: bool = False
    ended: bool = False

    def read(self, name: str, argument: Any, *, pushes: bool) -> None:
        """Follow one opcode."""
        self.ended = name == "STOP"
        self.called = self.called or name in CALLS
        if name == "MEMOIZE" or name in STORES:
            number = len(self.memory) if name == "MEMOIZE" else int(argument)
            self.memory[number] = self.texts[-1] if self.texts else None
            return
        imported = self._import(name, argument)
        if imported:
            self.imported.append(imported)
        if name in TEXTS:
            self.texts.append(str(argument))
        elif name in LOADS:
            self.texts.append(self.memory.get(int(argument)))
        elif pushes:
            self.texts.append(None)

    def _import(self, name: str, argument: Any) -> str:
        """The name that an opcode imports; empty if it imports none."""
        if name in ("GLOBAL", "INST"):
            return str(argument).replace(" ", ".", 1)
        if name.startswith("EXT"):
            return f"copyreg extension {argument}"
        if name != "STACK_GLOBAL":
            return ""
        module, attribute = ([None, None, *self.texts])[-2:]
        return UNKNOWN if module is None or attribute is None else f"{module}.{attribute}"
