"""The imports and calls of a pickle, found by following its instructions without executing any."""

from __future__ import annotations

import io
import lzma
import pickletools
import tarfile
import zipfile
import zlib
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO, Final, NamedTuple

MEBIBYTE: Final = 2**20


class NotScannedError(Exception):
    """Content that could not be scanned to its end.

    :param rule: ``unreadable-file`` or ``scan-limit``
    """

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(reason)
        self.rule = rule
        self.reason = reason


DAMAGE: Final = (
    NotScannedError,
    OSError,
    EOFError,
    ValueError,
    OverflowError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    tarfile.TarError,
)
"""What content raises that is damaged, encrypted or unknown, here and in the readers of the standard library."""


def problem_of(error: BaseException) -> NotScannedError:
    """Return the error of a reader as what a scan reports."""
    if isinstance(error, NotScannedError):
        return error
    text = " ".join(str(error).split()) or type(error).__name__
    return NotScannedError("unreadable-file", f"cannot be read: {text[:200]}")


MAX_INSTRUCTIONS: Final = 10_000_000
"""How many instructions of one pickle are read, which takes some ten seconds."""
LONGEST_TEXT: Final = 1024
"""In bytes: longer texts do not count, as no name of a module is that long."""
COMPUTED: Final = "(computed)"
"""Module or name that the pickle computes, so that only unpickling would show it."""


@dataclass(frozen=True)
class PickleImport:
    """A class or function that unpickling would import.

    :param is_called: whether it is called, or an object that it makes is changed
    """

    module: str
    name: str
    is_called: bool

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(frozen=True)
class PickleContent:
    """The imports of one pickle, in the order of their first mention.

    :param problem: why the pickle could not be followed to its end, if so
    """

    imports: tuple[PickleImport, ...]
    problem: NotScannedError | None


_OPCODES: Final = {ord(opcode.code): opcode for opcode in pickletools.opcodes}
_LENGTH_BYTES: Final = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
_ENCODINGS: Final = {
    "UNICODE": "raw-unicode-escape",
    "STRING": "unicode-escape",
    "BINSTRING": "latin-1",
    "SHORT_BINSTRING": "latin-1",
    **dict.fromkeys(("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"), "utf-8"),
}
_KEEP_THEIR_TARGET: Final = frozenset({"APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS", "READONLY_BUFFER"})
_MARK: Final = object()


class _Effect(NamedTuple):
    """Values that an instruction takes from the stack, down to a mark and then by number, and those that it gives."""

    takes_to_mark: bool
    takes: int
    gives: int


def _effect(opcode: pickletools.OpcodeInfo) -> _Effect:
    before = opcode.stack_before
    to_mark = pickletools.markobject in before
    takes = before.index(pickletools.markobject) if to_mark else len(before)
    kept = int(opcode.name in _KEEP_THEIR_TARGET)
    return _Effect(to_mark, takes - kept, len(opcode.stack_after) - kept)


_EFFECTS: Final[Mapping[str, _Effect]] = {opcode.name: _effect(opcode) for opcode in pickletools.opcodes}


def starts_like_a_pickle(head: bytes) -> bool:
    """Say whether content starts with a protocol and a known instruction, as pickles do from protocol 2 on."""
    return len(head) > 2 and head[0] == 0x80 and 1 <= head[1] <= 5 and head[2] in _OPCODES


def content_of(pickle: BinaryIO, most: int = MAX_INSTRUCTIONS) -> PickleContent:
    """Follow one pickle, up to its STOP or as far as possible.

    :param pickle: seekable, at the start of the pickle; afterwards behind what was read
    :param most: how many instructions are read
    """
    machine, problem = _Machine(), None
    try:
        for name, argument in _instructions(pickle, most):
            machine.follow(name, argument)
    except MemoryError:
        machine._stack.clear()  # what follows needs memory too
        machine._memo.clear()
        problem = NotScannedError("scan-limit", "holds more values than fit into memory; the rest was not scanned")
    except DAMAGE as error:
        problem = problem_of(error)
    imports = tuple(PickleImport(*name, is_called) for name, is_called in machine.imports.items())
    return PickleContent(imports, problem)


class _Machine:
    """Follows instructions with a stack of texts, names of imports, and None for all other values.

    It is lenient: an empty stack gives None. What a call returns has the name of what was called.
    """

    def __init__(self) -> None:
        self.imports: dict[tuple[str, str], bool] = {}
        self._stack: list[object] = []
        self._memo: dict[int, object] = {}

    def follow(self, name: str, argument: bytes | None) -> None:
        stack = self._stack
        if name in _ENCODINGS:
            stack.append(None if argument is None else _text(name, argument))
        elif name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            self._memo[len(self._memo) if name == "MEMOIZE" else _number(name, argument)] = self._top()
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(self._memo.get(_number(name, argument)))
        elif name in ("DUP", "MARK"):
            stack.append(_MARK if name == "MARK" else self._top())
        elif name in ("REDUCE", "NEWOBJ", "NEWOBJ_EX", "BUILD"):
            del stack[-2 if name == "NEWOBJ_EX" else -1 :]
            self._call(self._pop())
        elif not self._followed_import(name, argument):
            effect = _EFFECTS[name]
            if effect.takes_to_mark:
                self._pop_to_mark()
            if effect.takes:
                del stack[-effect.takes :]
            stack.extend([None] * effect.gives)

    def _followed_import(self, name: str, argument: bytes | None) -> bool:
        match name:
            case "GLOBAL":
                self._stack.append(self._import(*_names(argument)))
            case "STACK_GLOBAL":
                names = (self._pop(), self._pop())[::-1]
                self._stack.append(self._import(*(each if isinstance(each, str) else COMPUTED for each in names)))
            case "EXT1" | "EXT2" | "EXT4":
                self._stack.append(self._import("copyreg", f"extension {_number(name, argument)}"))
            case "INST":
                self._pop_to_mark()
                self._call(self._import(*_names(argument)))
            case "OBJ":
                self._call(self._pop_to_mark())
            case _:
                return False
        return True

    def _top(self) -> object:
        return self._stack[-1] if self._stack else None

    def _pop(self) -> object:
        return self._stack.pop() if self._stack else None

    def _pop_to_mark(self) -> object:
        """Return the value above the mark."""
        first = None
        while self._stack and (value := self._stack.pop()) is not _MARK:
            first = value
        return first

    def _import(self, module: str, name: str) -> tuple[str, str]:
        found = NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))
        self.imports.setdefault(found, False)
        return found

    def _call(self, callee: object) -> None:
        if isinstance(callee, tuple):
            self.imports[callee] = True
        self._stack.append(callee if isinstance(callee, tuple) else None)


def _text(name: str, argument: bytes) -> str:
    """Decode as `pickle` does, which removes one pair of quotes from Python 2's texts."""
    raw = argument.strip()[1:-1] if name == "STRING" else argument
    return raw.decode(_ENCODINGS[name], "replace")


def _names(argument: bytes | None) -> tuple[str, str]:
    if argument is None:
        return COMPUTED, COMPUTED
    module, _, name = argument.decode("utf-8", "backslashreplace").partition("\n")
    return module, name


def _number(name: str, argument: bytes | None) -> int:
    if name not in ("PUT", "GET"):
        return int.from_bytes(argument or b"", "little")
    try:
        number = int(argument or b"")
    except ValueError:
        number = -1
    if number < 0:
        raise NotScannedError("unreadable-file", f"numbers a value as {argument!r:.40}, which is no number")
    return number


def _instructions(content: BinaryIO, most: int) -> Iterator[tuple[str, bytes | None]]:
    """Yield name and argument of each instruction up to STOP; None for an argument that is too long to matter.

    Arguments are not interpreted, because `pickle` accepts more spellings of them than `pickletools.genops` does.
    """
    start = content.tell()
    end = content.seek(0, io.SEEK_END)
    content.seek(start)
    for _ in range(most):
        opcode = _OPCODES.get(_read(content, 1)[0])
        if opcode is None:
            raise NotScannedError("unreadable-file", f"holds no pickle instruction at byte {content.tell() - 1}")
        yield opcode.name, _argument(content, opcode, end)
        if opcode.name == "STOP":
            return
    raise NotScannedError("scan-limit", f"has more than {most} pickle instructions; the rest was not scanned")


def _argument(content: BinaryIO, opcode: pickletools.OpcodeInfo, end: int) -> bytes | None:
    size = 0 if opcode.arg is None else opcode.arg.n
    if size == pickletools.UP_TO_NEWLINE:
        lines = [_line(content) for _ in range(2 if opcode.name in ("GLOBAL", "INST") else 1)]
        return b"\n".join(line for line in lines if line is not None) if None not in lines else None
    if size in _LENGTH_BYTES:
        is_signed = size == pickletools.TAKEN_FROM_ARGUMENT4
        size = int.from_bytes(_read(content, _LENGTH_BYTES[size]), "little", signed=is_signed)
        if size < 0 or content.tell() + size > end:
            raise NotScannedError("unreadable-file", f"ends within a pickle instruction of {size} bytes")
        if size > LONGEST_TEXT:
            content.seek(size, io.SEEK_CUR)
            return None
    return _read(content, size)


def _line(content: BinaryIO) -> bytes | None:
    line = content.readline()
    return (line[:-1] if len(line) <= LONGEST_TEXT else None) if line.endswith(b"\n") else _ended()


def _read(content: BinaryIO, size: int) -> bytes:
    found = content.read(size)
    return found if len(found) == size else _ended()


def _ended() -> bytes:
    raise NotScannedError("unreadable-file", "ends before its pickle does")
