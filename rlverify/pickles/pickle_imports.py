"""What unpickling would import and call, found by following a pickle's instructions without executing them."""

from __future__ import annotations

import pickletools
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import BinaryIO, Final, NamedTuple, TypeAlias

from rlverify.pickles.bounded_reading import NotScannedError
from rlverify.pickles.pickle_instructions import MAX_INSTRUCTIONS, Instruction, instructions

COMPUTED: Final = "(computed)"
"""Module or name that the pickle computes, so that only unpickling would show it."""
MAX_SPARSE_MEMO: Final = 100_000


class _Imported(NamedTuple):
    """A class or function on the stack."""

    name: tuple[str, str]


class _Made(NamedTuple):
    """What a call of an imported class or function returned."""

    name: tuple[str, str]


_MARK: Final = object()
_Symbol: TypeAlias = "str | _Imported | _Made | object | None"
"""An entry of the stack; None for values that name nothing."""


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
    """What one pickle would do.

    :param imports: in the order of their first mention
    :param problem: why the pickle could not be followed to its end, if so
    :param is_number: whether it holds one number and nothing else, as the first pickle of torch's old format does
    """

    imports: tuple[PickleImport, ...]
    problem: NotScannedError | None
    is_number: bool


def content_of(pickle: BinaryIO, most: int = MAX_INSTRUCTIONS) -> PickleContent:
    """Follow one pickle, up to its STOP or as far as possible.

    :param pickle: seekable, at the start of the pickle; afterwards behind what was read
    :param most: how many instructions are read
    """
    machine, problem, names = _Machine(), None, set()
    try:
        for instruction in instructions(pickle, most):
            names.add(instruction.name)
            machine.follow(instruction)
    except NotScannedError as error:
        problem = error
    imports = tuple(PickleImport(*name, is_called) for name, is_called in machine.imports.items())
    return PickleContent(imports, problem, problem is None and names <= _NUMBER)


class _Memo:
    """Values that a pickle numbered. Numbers that follow each other cost a list entry each, others are limited."""

    def __init__(self) -> None:
        self._dense: list[_Symbol] = []
        self._sparse: dict[int, _Symbol] = {}

    def put(self, number: int, value: _Symbol) -> None:
        if number < len(self._dense):
            self._dense[number] = value
        elif number == len(self._dense) and number not in self._sparse:
            self._dense.append(value)
        else:
            self._sparse[number] = value
            if len(self._sparse) > MAX_SPARSE_MEMO:
                reason = f"numbers more than {MAX_SPARSE_MEMO} values out of order; the rest was not scanned"
                raise NotScannedError("scan-limit", reason)

    def append(self, value: _Symbol) -> None:
        self.put(len(self._dense) + len(self._sparse), value)

    def get(self, number: int) -> _Symbol:
        return self._dense[number] if 0 <= number < len(self._dense) else self._sparse.get(number)


class _Machine:
    """Follows instructions with a stack of symbols. It is lenient: what an empty stack lacks is a value unknown."""

    def __init__(self) -> None:
        self.imports: dict[tuple[str, str], bool] = {}
        self._stack: list[_Symbol] = []
        self._memo = _Memo()

    def follow(self, instruction: Instruction) -> None:
        special = _SPECIAL.get(instruction.name)
        if special is not None:
            special(self, instruction.argument)
            return
        effect = _EFFECTS[instruction.name]
        if effect.takes_to_mark:
            self._pop_to_mark()
        if effect.takes:
            del self._stack[-effect.takes :]
        self._stack.extend([None] * effect.gives)

    def _pop(self) -> _Symbol:
        return self._stack.pop() if self._stack else None

    def _pop_to_mark(self) -> list[_Symbol]:
        found: list[_Symbol] = []
        while self._stack and (value := self._stack.pop()) is not _MARK:
            found.append(value)
        return found[::-1]

    def _import(self, module: str, name: str) -> _Imported:
        module, name = NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))
        self.imports.setdefault((module, name), False)
        return _Imported((module, name))

    def _call(self, callee: _Symbol) -> None:
        if isinstance(callee, _Imported | _Made):
            self.imports[callee.name] = True
            self._stack.append(_Made(callee.name))
        else:
            self._stack.append(None)

    def mark(self, _: bytes | None) -> None:
        self._stack.append(_MARK)

    def text(self, argument: bytes | None) -> None:
        self._stack.append(None if argument is None else argument.decode("utf-8", "replace"))

    def escaped_text(self, argument: bytes | None) -> None:
        self._stack.append(None if argument is None else argument.decode("raw-unicode-escape", "replace"))

    def quoted_text(self, argument: bytes | None) -> None:
        """Python 2's text, of which `pickle` removes one pair of quotes and the escapes."""
        self._stack.append(None if argument is None else argument.strip()[1:-1].decode("unicode-escape", "replace"))

    def latin_text(self, argument: bytes | None) -> None:
        self._stack.append(None if argument is None else argument.decode("latin-1"))

    def look_up(self, argument: bytes | None) -> None:
        self._stack.append(self._import(*_names(argument)))

    def look_up_from_stack(self, _: bytes | None) -> None:
        name, module = self._pop(), self._pop()
        module, name = (part if isinstance(part, str) else COMPUTED for part in (module, name))
        self._stack.append(self._import(module, name))

    def look_up_extension(self, argument: bytes | None) -> None:
        number = int.from_bytes(argument or b"", "little")
        self._stack.append(self._import("copyreg", f"extension {number}"))

    def make_from_line(self, argument: bytes | None) -> None:
        self._pop_to_mark()
        self._call(self._import(*_names(argument)))

    def make_from_mark(self, _: bytes | None) -> None:
        found = self._pop_to_mark()
        self._call(found[0] if found else None)

    def call(self, _: bytes | None) -> None:
        self._pop()
        self._call(self._pop())

    def call_with_keywords(self, argument: bytes | None) -> None:
        self._pop()
        self.call(argument)

    def build(self, _: bytes | None) -> None:
        self._pop()
        self._call(self._pop())

    def put(self, argument: bytes | None) -> None:
        self._memo.put(_number(argument), self._stack[-1] if self._stack else None)

    def put_line(self, argument: bytes | None) -> None:
        self._memo.put(_decimal(argument), self._stack[-1] if self._stack else None)

    def memoize(self, _: bytes | None) -> None:
        self._memo.append(self._stack[-1] if self._stack else None)

    def get(self, argument: bytes | None) -> None:
        self._stack.append(self._memo.get(_number(argument)))

    def get_line(self, argument: bytes | None) -> None:
        self._stack.append(self._memo.get(_decimal(argument)))

    def duplicate(self, _: bytes | None) -> None:
        self._stack.append(self._stack[-1] if self._stack else None)


def _names(argument: bytes | None) -> tuple[str, str]:
    if argument is None:
        return COMPUTED, COMPUTED
    module, _, name = argument.decode("utf-8", "backslashreplace").partition("\n")
    return module, name


def _number(argument: bytes | None) -> int:
    return int.from_bytes(argument or b"", "little")


def _decimal(argument: bytes | None) -> int:
    try:
        number = int(argument or b"")
    except ValueError:
        number = -1
    if number < 0:
        raise NotScannedError("unreadable-file", f"numbers a value as {argument!r:.40}, which is no number")
    return number


class _Effect(NamedTuple):
    """How an instruction without a method changes the stack: values taken down to a mark, then a number, then given."""

    takes_to_mark: bool
    takes: int
    gives: int


_KEEP_THEIR_TARGET: Final = frozenset({"APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS", "READONLY_BUFFER"})


def _effect(opcode: pickletools.OpcodeInfo) -> _Effect:
    before = opcode.stack_before
    to_mark = pickletools.markobject in before
    takes = before.index(pickletools.markobject) if to_mark else len(before)
    kept = int(opcode.name in _KEEP_THEIR_TARGET)
    return _Effect(to_mark, takes - kept, len(opcode.stack_after) - kept)


_EFFECTS: Final[Mapping[str, _Effect]] = {opcode.name: _effect(opcode) for opcode in pickletools.opcodes}
_NUMBER: Final = frozenset(
    {
        "PROTO",
        "FRAME",
        "STOP",
        "INT",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG",
        "LONG1",
        "LONG4",
        "BINPUT",
        "PUT",
        "MEMOIZE",
    }
)
_SPECIAL: Final[Mapping[str, Callable[[_Machine, bytes | None], None]]] = {
    "MARK": _Machine.mark,
    "UNICODE": _Machine.escaped_text,
    "BINUNICODE": _Machine.text,
    "SHORT_BINUNICODE": _Machine.text,
    "BINUNICODE8": _Machine.text,
    "STRING": _Machine.quoted_text,
    "BINSTRING": _Machine.latin_text,
    "SHORT_BINSTRING": _Machine.latin_text,
    "GLOBAL": _Machine.look_up,
    "STACK_GLOBAL": _Machine.look_up_from_stack,
    "EXT1": _Machine.look_up_extension,
    "EXT2": _Machine.look_up_extension,
    "EXT4": _Machine.look_up_extension,
    "INST": _Machine.make_from_line,
    "OBJ": _Machine.make_from_mark,
    "REDUCE": _Machine.call,
    "NEWOBJ": _Machine.call,
    "NEWOBJ_EX": _Machine.call_with_keywords,
    "BUILD": _Machine.build,
    "PUT": _Machine.put_line,
    "BINPUT": _Machine.put,
    "LONG_BINPUT": _Machine.put,
    "MEMOIZE": _Machine.memoize,
    "GET": _Machine.get_line,
    "BINGET": _Machine.get,
    "LONG_BINGET": _Machine.get,
    "DUP": _Machine.duplicate,
}
