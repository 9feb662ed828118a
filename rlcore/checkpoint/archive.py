"""The zip file that torch.save writes, read strictly: only the records that belong there, each exactly once."""

from __future__ import annotations

import re
import struct
import sys
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from rlcore.checkpoint.digest import END_RECORD, end_record_position
from rlcore.checkpoint.refusal import RefusedError, quoted

_ENTRY = struct.Struct("<4s4x2H4x3L3H8xL")
_LOCAL_HEADER = struct.Struct("<4s2x2H16x2H")
_END_RECORD_64 = struct.Struct("<4sQ4s2L4Q")
_LOCATOR_64 = struct.Struct("<4sLQL")
_ENTRY_SIGNATURE = b"PK\x01\x02"
_LOCAL_SIGNATURE = b"PK\x03\x04"
_MAX_DIRECTORY_BYTES = 2**22  # some 60,000 records, of which each costs half a kilobyte to list
_DATA_DESCRIPTOR_OR_UTF8 = 0x808
_SMALL_RECORD_BYTES = 64
_STORAGE_NAME = re.compile(r"data/(0|[1-9][0-9]{0,8})")
_SB3_RECORDS = frozenset({"data", "policy.pth", "pytorch_variables.pth", "_stable_baselines3_version"})
_SMALL_RECORDS = {
    "version": re.compile(rb"3\n"),
    "byteorder": re.compile(rb"little"),
    ".format_version": re.compile(rb"1"),
    ".storage_alignment": re.compile(rb"[0-9]{1,4}"),
    ".data/serialization_id": re.compile(rb"[0-9]{1,64}"),
}


class _Entry(NamedTuple):
    """What the zip directory says of a record; ``additions`` are the bytes of its extra field and comment."""

    raw_name: bytes
    flags: int
    method: int
    crc: int
    compressed: int
    size: int
    additions: int
    offset: int

    @property
    def name(self) -> str:
        return self.raw_name.decode("utf-8", "backslashreplace")


def read_records(content: memoryview, *, is_intact: bool = False) -> dict[str, memoryview]:
    """Return the records of a torch.save file by name, without the folder's name that torch puts before each.

    Everything is a view into ``content``, so the cost in memory is that of the names.

    :param is_intact: whether damage is excluded already, so that the records' own checksums need not be compared
    :raises RefusedError: not such a zip: truncated, or with compressed, encrypted, duplicate, overlapping, foreign or
        damaged records, or with weights in another byte order
    """
    entries = _directory(content)
    if not _SB3_RECORDS.isdisjoint(entry.name for entry in entries):
        raise RefusedError(
            "is a file of Stable-Baselines3's save(), which holds pickles that could run code and no distributional "
            "critics; if you trust it, load it with the class that wrote it (RecurrentPPO.load) and train a "
            "DistributionalPPO on the same environment"
        )
    folder, separator, _ = entries[0].name.partition("/")
    if not separator:
        raise RefusedError(f"holds the foreign record {quoted(entries[0].name)}; torch.save writes no such file")
    records: dict[str, memoryview] = {}
    end_of_previous = 0
    for entry in sorted(entries, key=lambda entry: entry.offset):
        name = entry.name.removeprefix(f"{folder}/")
        if name in records:
            raise RefusedError(f"holds the record {quoted(name)} twice")
        if entry.offset < end_of_previous:
            raise RefusedError(f"its record {quoted(name)} overlaps the one before")
        start = _data_start(content, entry)
        end_of_previous = start + entry.size
        data = records[name] = content[start:end_of_previous]
        if len(data) != entry.size or not (is_intact or zlib.crc32(data) == entry.crc):
            raise RefusedError(f"its record {quoted(entry.name)} is damaged: length or CRC-32 do not fit")
    _check_names(records)
    return records


def _directory(content: memoryview) -> list[_Entry]:
    if content[:4] != _LOCAL_SIGNATURE:
        raise RefusedError("is not a file that torch.save wrote in its zip format")
    end = end_record_position(content)
    _, disk, directory_disk, entries_here, entries, size, offset, _ = END_RECORD.unpack_from(content, end)
    if disk or directory_disk or entries_here != entries or size > _MAX_DIRECTORY_BYTES:
        raise RefusedError("its zip directory is damaged")
    after = bytes(content[offset + size : end])
    if offset + size != end and after != _end_records_64(after, entries, size, offset):
        raise RefusedError("its zip directory is damaged: the end records contradict each other")
    found = list(_entries(content[offset : offset + size]))
    if not found or len(found) != entries:
        raise RefusedError(f"its zip directory announces {entries} records and lists {len(found)}")
    return found


def _entries(directory: memoryview) -> Iterator[_Entry]:
    while directory:
        if len(directory) < _ENTRY.size or directory[:4] != _ENTRY_SIGNATURE:
            raise RefusedError("its zip directory is damaged")
        _, flags, method, crc, compressed, size, *lengths, offset = _ENTRY.unpack_from(directory)
        if _ENTRY.size + sum(lengths) > len(directory):
            raise RefusedError("its zip directory is damaged")
        raw_name = bytes(directory[_ENTRY.size :][: lengths[0]])
        yield _Entry(raw_name, flags, method, crc, compressed, size, lengths[1] + lengths[2], offset)
        directory = directory[_ENTRY.size + sum(lengths) :]


def _end_records_64(found: bytes, entries: int, size: int, offset: int) -> bytes:
    """Return the 64-bit end record and its locator, which torch.save always adds, as they must be for these numbers.

    Only the two version fields are taken from what was found.
    """
    length = _END_RECORD_64.size - 12
    record = _END_RECORD_64.pack(b"PK\x06\x06", length, found[12:16], 0, 0, entries, entries, size, offset)
    return record + _LOCATOR_64.pack(b"PK\x06\x07", 0, offset + size, 1)


def _data_start(content: memoryview, entry: _Entry) -> int:
    name = quoted(entry.name)
    if entry.method or entry.compressed != entry.size:
        raise RefusedError(f"its record {name} is compressed; torch.save compresses nothing")
    if entry.flags & ~_DATA_DESCRIPTOR_OR_UTF8 or entry.additions:
        raise RefusedError(f"its record {name} is encrypted or carries additions that torch.save does not write")
    start = entry.offset + _LOCAL_HEADER.size
    if start > len(content):
        raise RefusedError(f"its record {name} lies outside the file")
    signature, flags, method, name_length, extra_length = _LOCAL_HEADER.unpack_from(content, entry.offset)
    local_name = bytes(content[start : start + name_length])
    if (signature, flags, method, local_name) != (_LOCAL_SIGNATURE, entry.flags, 0, entry.raw_name):
        raise RefusedError(f"its record {name} contradicts the zip directory")
    return start + int(name_length) + int(extra_length)


def _check_names(records: dict[str, memoryview]) -> None:
    for name, data in records.items():
        expected, start = _SMALL_RECORDS.get(name), bytes(data[:_SMALL_RECORD_BYTES])
        if expected is None and name != "data.pkl" and not _STORAGE_NAME.fullmatch(name):
            raise RefusedError(f"holds the foreign record {quoted(name)}; torch.save writes no such file")
        if expected is not None and (len(start) != len(data) or not expected.fullmatch(start)):
            raise RefusedError(f"its record {name!r} holds {quoted(start)}, which is not readable here")
    for name in ("data.pkl", "version"):
        if name not in records:
            raise RefusedError(f"its record {name!r} is missing")
    if sys.byteorder != "little":
        raise RefusedError("holds little-endian weights and this machine is big-endian")
