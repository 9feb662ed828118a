"""The instructions of a pickle, one after the other, without executing any and without holding long texts in memory."""

from __future__ import annotations

import io
import pickletools
from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

from rlverify.pickles.bounded_reading import DAMAGE, NotScannedError, unreadable

MAX_INSTRUCTIONS: Final = 10_000_000
"""How many instructions of one pickle are read, which takes some ten seconds."""
LONGEST_TEXT: Final = 1024
"""In bytes: longer texts are skipped, as no name of a module is that long."""

_LENGTH_BYTES: Final = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
_SECOND_LINE: Final = frozenset({"GLOBAL", "INST"})
_CODES: Final = {ord(opcode.code): opcode for opcode in pickletools.opcodes}


class Instruction(NamedTuple):
    """One instruction.

    :param argument: its bytes without length and line end; None where it has none or they are too long to matter
    """

    name: str
    argument: bytes | None


def starts_like_a_pickle(head: bytes) -> bool:
    """Whether content starts with the protocol of a pickle and a known instruction, as all do from protocol 2 on."""
    return len(head) > 2 and head[0] == 0x80 and 1 <= head[1] <= 5 and head[2] in _CODES


def instructions(content: BinaryIO, most: int = MAX_INSTRUCTIONS) -> Iterator[Instruction]:
    """The instructions up to and including STOP.

    Arguments are not interpreted, because `pickle` accepts more spellings of them than `pickletools.genops` does.

    :param content: seekable, at the start of a pickle; afterwards behind its STOP
    :raises NotScannedError: if the content ends early, has an unknown instruction or more than ``most``
    """
    end = _end_of(content)
    for _ in range(most):
        code = _read(content, 1)
        opcode = _CODES.get(code[0])
        if opcode is None:
            raise NotScannedError("unreadable-file", f"holds no pickle instruction at byte {content.tell() - 1}")
        yield Instruction(opcode.name, _argument(content, opcode, end))
        if opcode.name == "STOP":
            return
    raise NotScannedError("scan-limit", f"has more than {most} pickle instructions; the rest was not scanned")


def _end_of(content: BinaryIO) -> int:
    place = content.tell()
    end = content.seek(0, io.SEEK_END)
    content.seek(place)
    return end


def _argument(content: BinaryIO, opcode: pickletools.OpcodeInfo, end: int) -> bytes | None:
    if opcode.arg is None:
        return None
    size = opcode.arg.n
    if size >= 0:
        return _read(content, size)
    if size in _LENGTH_BYTES:
        return _counted(content, _LENGTH_BYTES[size], end, is_signed=size == pickletools.TAKEN_FROM_ARGUMENT4)
    first = _line(content)
    if opcode.name not in _SECOND_LINE:
        return first
    second = _line(content)
    return None if first is None or second is None else first + b"\n" + second


def _counted(content: BinaryIO, length_bytes: int, end: int, *, is_signed: bool) -> bytes | None:
    length = int.from_bytes(_read(content, length_bytes), "little", signed=is_signed)
    if length < 0 or content.tell() + length > end:
        raise NotScannedError("unreadable-file", f"ends within a pickle instruction of {length} bytes")
    if length <= LONGEST_TEXT:
        return _read(content, length)
    content.seek(length, io.SEEK_CUR)
    return None


def _line(content: BinaryIO) -> bytes | None:
    line = _read_line(content)
    if line.endswith(b"\n"):
        return line[:-1]
    while not line.endswith(b"\n"):
        line = _read_line(content)
    return None


def _read_line(content: BinaryIO) -> bytes:
    try:
        line = content.readline(LONGEST_TEXT)
    except DAMAGE as error:
        raise unreadable(error) from error
    return line or _ended()


def _read(content: BinaryIO, size: int) -> bytes:
    try:
        found = content.read(size)
    except DAMAGE as error:
        raise unreadable(error) from error
    return found if len(found) == size else _ended()


def _ended() -> bytes:
    raise NotScannedError("unreadable-file", "ends before its pickle does")
