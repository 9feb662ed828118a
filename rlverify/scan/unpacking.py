"""Finds the pickles in a file: plain, compressed, in model files, or in archives in archives."""

from __future__ import annotations

import base64
import binascii
import bz2
import gzip
import io
import json
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import BinaryIO, Final, cast

from rlverify.pickles.bounded_reading import DAMAGE, MEBIBYTE, NotScannedError, PackedStream, UnpackBudget, unreadable
from rlverify.pickles.pickle_imports import starts_like_a_pickle
from rlverify.scan.findings import ScanFinding
from rlverify.scan.pickle_findings import Place, findings_of_pickles

SERIALIZED: Final = ":serialized:"
"""The key under which Stable-Baselines3 keeps a pickle in base64."""
MAX_FIELD_BYTES: Final = 64 * MEBIBYTE
"""How much is read of all fields together."""
_REMEDY: Final = "use rlverify.scan.load_parameters_safely(file, model), which skips this field"


def parsed_fields(text: bytes) -> Mapping[str, object]:
    """Return the fields of the member ``data``, as Stable-Baselines3 reads them, with pickles still in base64.

    :raises NotScannedError: if it is no JSON object
    """
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotScannedError("unreadable-file", f"is not JSON: {str(error)[:120]}") from error
    if not isinstance(fields, dict):
        raise NotScannedError("unreadable-file", f"is not a JSON object but a {type(fields).__name__}")
    return fields


def _findings_of_fields(packed: PackedStream, place: Place, budget: UnpackBudget) -> Iterator[ScanFinding]:
    unpacked, problem = budget.unpack(packed, MAX_FIELD_BYTES)
    with unpacked:
        text = unpacked.read()
    try:
        if problem is not None:
            raise problem
        fields = parsed_fields(text)
    except NotScannedError as error:
        yield place.problem(error)
        return
    for name, value in fields.items():
        if isinstance(value, dict) and SERIALIZED in value:
            yield from _findings_of_field(value[SERIALIZED], replace(place.inside(name, ":"), remedy=_REMEDY))


def _findings_of_field(serialized: object, place: Place) -> Iterator[ScanFinding]:
    """Decode as leniently as Stable-Baselines3 does."""
    try:
        if not isinstance(serialized, str):
            raise binascii.Error(f"but a {type(serialized).__name__}")
        pickled = base64.b64decode(serialized.encode("utf-8", "replace"))
    except binascii.Error as error:
        yield place.finding("unreadable-file", "warning", f"is not base64: {error}".replace(": but", " but"))
        return
    yield from findings_of_pickles(io.BytesIO(pickled), place)


HEAD_BYTES: Final = 512
MAX_MEMBERS: Final = 20_000
MAX_DEPTH: Final = 4
MAX_ARRAY_HEADER_BYTES: Final = 2**20

CHECKPOINT_SUFFIXES: Final = frozenset(
    [".pkl", ".pickle", ".pck", ".pt", ".pth", ".ckpt", ".joblib", ".dill", ".cloudpickle", ".npy", ".npz"]
)
"""Of files whose content must be a pickle, an archive or an array; other files are looked at for their first bytes."""

MODEL_FIELDS: Final = "data"
MODEL_VERSION: Final = "_stable_baselines3_version"
"""Members of a model file of Stable-Baselines3."""

_ZIP: Final = b"PK\x03\x04"
_END_RECORD: Final = b"PK\x05\x06"
_END_RECORD_BYTES: Final = 22
_MAX_COMMENT_BYTES: Final = 2**16
_ARRAY: Final = b"\x93NUMPY"
_OBJECTS: Final = re.compile(rb"""['"][|<>=]?O\d*['"]""")
_TENSOR_DATA: Final = re.compile(r"(?P<folder>(?:.*/)?)data/\d+")


class _ZlibReader:
    """Unpacks a zlib stream, as joblib writes it."""

    def __init__(self, packed: BinaryIO) -> None:
        self._packed = packed
        self._decompressor = zlib.decompressobj()

    def read1(self, size: int) -> bytes:
        """Return some of the next bytes; none at the end."""
        while not self._decompressor.eof:
            packed = self._decompressor.unconsumed_tail or self._packed.read(2**16)
            if not packed:
                raise EOFError("the compressed content ends early")
            if unpacked := self._decompressor.decompress(packed, size):
                return unpacked
        return b""


_COMPRESSIONS: Final[Mapping[bytes, Callable[[BinaryIO], PackedStream]]] = {
    b"\x1f\x8b": lambda packed: gzip.GzipFile(fileobj=packed, mode="rb"),
    b"BZh": lambda packed: bz2.BZ2File(packed),
    b"\xfd7zXZ\x00": lambda packed: lzma.LZMAFile(packed),  # noqa: SIM115
    b"\x78\x01": _ZlibReader,
    b"\x78\x5e": _ZlibReader,
    b"\x78\x9c": _ZlibReader,
    b"\x78\xda": _ZlibReader,
}


def is_checkpoint(name: str, head: bytes) -> bool:
    """Say whether a name or the first `HEAD_BYTES` bytes are those of a file that may hold a pickle."""
    is_archive = head.startswith((_ZIP, _ARRAY, *_COMPRESSIONS)) or _is_tar(head)
    return PurePosixPath(name).suffix.lower() in CHECKPOINT_SUFFIXES or starts_like_a_pickle(head) or is_archive


def _is_tar(head: bytes) -> bool:
    return head[257:262] == b"ustar"


def findings_of_content(
    content: BinaryIO, place: Place, budget: UnpackBudget | None = None, depth: int = 0
) -> Iterator[ScanFinding]:
    """Yield what a file, or an unpacked part of one, would do when it is loaded.

    :param content: seekable, at its start
    :param depth: how many archives are around this content
    """
    budget = budget or UnpackBudget()
    head = content.read(HEAD_BYTES)
    if depth > MAX_DEPTH:
        yield place.finding("scan-limit", "warning", f"lies in more than {MAX_DEPTH} archives; it was not scanned")
        return
    is_zip = head.startswith(_ZIP) or ends_like_a_zip(content)
    if is_zip:
        yield from _findings_of_zip(content, place, budget, depth)
    if not head.startswith(_ZIP):
        content.seek(0)
        yield from _findings_by_start(content, head, place, budget, depth, is_expected=not is_zip)


def ends_like_a_zip(content: BinaryIO) -> bool:
    """Say whether a file is an archive by its end, whatever comes before; the file is at its start afterwards."""
    try:
        return zipfile.is_zipfile(content)
    except DAMAGE:
        return False
    finally:
        content.seek(0)


def _findings_by_start(
    content: BinaryIO, head: bytes, place: Place, budget: UnpackBudget, depth: int, *, is_expected: bool
) -> Iterator[ScanFinding]:
    for start, unpacked in _COMPRESSIONS.items():
        if head.startswith(start):
            yield from _findings_of_packed(unpacked(content), place, budget, depth)
            return
    if _is_tar(head):
        yield from _findings_of_tar(content, place, budget, depth)
    elif head.startswith(_ARRAY):
        yield from _findings_of_array(content, place)
    elif is_expected or starts_like_a_pickle(head):
        yield from findings_of_pickles(content, place)


def _findings_of_packed(packed: PackedStream, place: Place, budget: UnpackBudget, depth: int) -> Iterator[ScanFinding]:
    unpacked, problem = budget.unpack(packed)
    with unpacked:
        found = list(findings_of_content(unpacked, place, budget, depth + 1))
    if problem is not None:
        found = [each for each in found if each.rule != "unreadable-file"] + [place.problem(problem)]
    yield from found


def _findings_of_zip(content: BinaryIO, place: Place, budget: UnpackBudget, depth: int) -> Iterator[ScanFinding]:
    try:
        archive = zipfile.ZipFile(content)
    except DAMAGE as error:
        yield place.problem(unreadable(error))
        return
    with archive:
        members = archive.infolist()
        folders = {each.filename.removesuffix("data.pkl") for each in members if each.filename.endswith("data.pkl")}
        for member in members[:MAX_MEMBERS]:
            of_tensor = _TENSOR_DATA.fullmatch(member.filename)
            if not (member.is_dir() or (of_tensor and of_tensor["folder"] in folders)):
                yield from _findings_of_member(archive, member, place.inside(member.filename), budget, depth)
    if _has_bytes_behind_its_end(content):
        yield place.finding("unreadable-file", "warning", "has bytes behind the end of the archive, as if cut off")
    if len(members) > MAX_MEMBERS:
        reason = f"has {len(members)} members; only the first {MAX_MEMBERS} were scanned"
        yield place.finding("scan-limit", "warning", reason)


def _has_bytes_behind_its_end(content: BinaryIO) -> bool:
    """Say if bytes follow the archive, as in a cut model file: `zipfile` then reads the end of an inner archive."""
    size = content.seek(0, io.SEEK_END)
    content.seek(max(0, size - _END_RECORD_BYTES - _MAX_COMMENT_BYTES))
    end = content.read()
    record = end[end.rfind(_END_RECORD) :]
    return len(record) != _END_RECORD_BYTES + int.from_bytes(record[20:22], "little")


def _findings_of_member(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, place: Place, budget: UnpackBudget, depth: int
) -> Iterator[ScanFinding]:
    try:
        with archive.open(member) as packed:
            head = packed.read(HEAD_BYTES)
        may_be_json = head.strip()[:1] in (b"", b"{") or MODEL_VERSION in archive.NameToInfo
        if member.filename == MODEL_FIELDS and depth == 0 and may_be_json:
            with archive.open(member) as packed:
                yield from _findings_of_fields(cast(PackedStream, packed), place, budget)
        elif is_checkpoint(member.filename, head):
            with archive.open(member) as packed:
                yield from _findings_of_packed(cast(PackedStream, packed), place, budget, depth)
    except DAMAGE as error:
        yield place.problem(unreadable(error))


def _findings_of_tar(content: BinaryIO, place: Place, budget: UnpackBudget, depth: int) -> Iterator[ScanFinding]:
    """Also of torch's oldest format, a tar archive with the pickles ``pickle``, ``tensors`` and ``storages``."""
    try:
        with tarfile.open(fileobj=content, mode="r:") as archive:
            for number, member in enumerate(archive):
                if number == MAX_MEMBERS:
                    reason = f"has more than {MAX_MEMBERS} members; the others were not scanned"
                    yield place.finding("scan-limit", "warning", reason)
                    return
                packed = archive.extractfile(member) if member.isreg() else None
                if packed is not None and is_checkpoint(member.name, packed.read(HEAD_BYTES)):
                    packed.seek(0)
                    yield from _findings_of_packed(cast(PackedStream, packed), place.inside(member.name), budget, depth)
    except DAMAGE as error:
        yield place.problem(unreadable(error))


def _findings_of_array(content: BinaryIO, place: Place) -> Iterator[ScanFinding]:
    """An array of objects is a pickle behind the header."""
    start = content.read(12)
    length_bytes = 2 if start[6:7] == b"\x01" else 4
    size = int.from_bytes(start[8 : 8 + length_bytes], "little")
    if size > MAX_ARRAY_HEADER_BYTES:
        yield place.finding("scan-limit", "warning", f"has an array header of {size} bytes; it was not scanned")
        return
    content.seek(8 + length_bytes)
    if _OBJECTS.search(content.read(size)):
        yield from findings_of_pickles(content, place)
