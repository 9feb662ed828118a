"""Finds the pickles in a file: plain, compressed, in model files, or in archives in archives."""

from __future__ import annotations

import base64
import bz2
import gzip
import io
import json
import lzma
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import PurePosixPath
from tempfile import SpooledTemporaryFile
from tokenize import TokenError
from typing import Any, BinaryIO, Final, cast

from rlverify.pickles import DAMAGE, MEBIBYTE, NotScannedError, problem_of, starts_like_a_pickle
from rlverify.scan.findings import Place, ScanFinding, findings_of_pickles

SERIALIZED: Final = ":serialized:"
"""The key under which Stable-Baselines3 keeps a pickle in base64."""
MODEL_FIELDS: Final = "data"
"""The member of a model file of Stable-Baselines3 that has its fields as JSON."""
HEAD_BYTES: Final = 512
LOOKED_AT: Final = MEBIBYTE
"""How much is read of a member whose name and first bytes are no checkpoint's."""
MAX_DEPTH: Final = 4
_REMEDY: Final = "use rlverify.scan.load_parameters_safely(file, model), which skips this field"

CHECKPOINT_SUFFIXES: Final = frozenset(
    [".pkl", ".pickle", ".pck", ".pt", ".pth", ".ckpt", ".joblib", ".dill", ".cloudpickle", ".npy", ".npz"]
)
"""Of files whose content must be a pickle, an archive or an array; other files are looked at for their first bytes."""

MAX_MEMBER_BYTES: Final = 256 * MEBIBYTE
"""How much is read of one member of an archive, or of one compressed file."""
MAX_UNPACKED_BYTES: Final = 1024 * MEBIBYTE
"""How much is unpacked of one file, all its members and levels together."""
_IN_MEMORY: Final = 16 * MEBIBYTE

_ZIP: Final = b"PK\x03\x04"
_END_RECORD_BYTES, _END_RECORD_64_BYTES = 22, 56
_LOCATOR: Final = struct.Struct("<4s4xQL")  # of the end record with 64 bits
_END_RECORD: Final = b"PK\x05\x06"
_DIRECTORY_PLACE, _COMMENT_BYTES, _COMMENT = 6, 7, 8  # in an end record as `zipfile` reads it
_ARRAY: Final = b"\x93NUMPY"
_TENSOR_DATA: Final = re.compile(r"(?P<folder>(?:.*/)?)data/\d+")


def _chunks(stream: Any) -> Iterator[bytes]:
    """Return what a stream unpacks while it is read; what precedes damage comes before the error."""
    return iter(partial(stream.read1, MEBIBYTE), b"")


def _zlib_chunks(packed: BinaryIO) -> Iterator[bytes]:
    """Unpack a zlib stream, as joblib writes it."""
    decompressor = zlib.decompressobj()
    while not decompressor.eof:
        if not (content := decompressor.unconsumed_tail or packed.read(2**16)):
            raise EOFError("the compressed content ends early")
        yield decompressor.decompress(content, MEBIBYTE)


_COMPRESSIONS: Final[Mapping[bytes, Callable[[BinaryIO], Iterator[bytes]]]] = {
    b"\x1f\x8b": lambda packed: _chunks(gzip.GzipFile(fileobj=packed, mode="rb")),
    b"BZh": lambda packed: _chunks(bz2.BZ2File(packed)),
    b"\xfd7zXZ\x00": lambda packed: _chunks(lzma.LZMAFile(packed)),  # noqa: SIM115
    **dict.fromkeys((b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"), _zlib_chunks),
}


def is_checkpoint(name: str, head: bytes) -> bool:
    """Say whether a name or the first `HEAD_BYTES` bytes are those of a file that may hold a pickle."""
    is_archive = head.startswith((_ZIP, _ARRAY, *_COMPRESSIONS)) or _is_tar(head)
    return PurePosixPath(name).suffix.lower() in CHECKPOINT_SUFFIXES or starts_like_a_pickle(head) or is_archive


def _is_tar(head: bytes) -> bool:
    return head[257:262] == b"ustar"


def ends_like_a_zip(content: BinaryIO) -> bool:
    """Say whether a file is an archive by its end, whatever comes before; the file is at its start afterwards."""
    try:
        return zipfile.is_zipfile(content)
    except DAMAGE:
        return False
    finally:
        content.seek(0)


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
    try:
        is_zip = head.startswith(_ZIP) or ends_like_a_zip(content)
        if is_zip:
            with zipfile.ZipFile(content) as archive:
                names = archive.namelist()
                members = (
                    (each.filename, partial(archive.open, each)) for each in archive.infolist() if not each.is_dir()
                )
                yield from _findings_of_members(members, place, budget, depth, _tensor_data(names))
                if reason := _why_others_differ(content, archive.start_dir, is_start=head.startswith(_ZIP)):
                    yield place.finding("unreadable-file", "warning", reason)
        content.seek(0)
        if head.startswith(_ZIP):
            return
        if unpacked := next((each for start, each in _COMPRESSIONS.items() if head.startswith(start)), None):
            yield from _findings_of_packed(unpacked(content), place, budget, depth)
        elif _is_tar(head):
            with tarfile.open(fileobj=content, mode="r:") as tar:
                files = ((each.name, partial(tar.extractfile, each)) for each in tar if each.isreg())
                yield from _findings_of_members(files, place, budget, depth)
            content.seek(0)
            yield from findings_of_pickles(content, place, is_expected=False)
        elif head.startswith(_ARRAY):
            yield from _findings_of_array(content, place)
        else:  # what precedes a zip may be anything
            is_expected = not is_zip or starts_like_a_pickle(head)
            yield from findings_of_pickles(content, place, is_expected=is_expected)
    except DAMAGE as error:
        yield place.problem(error)


def _tensor_data(names: Collection[str]) -> frozenset[str]:
    """Return the members that torch reads as the numbers of tensors, next to ``data.pkl``."""
    folders = {name.removesuffix("data.pkl") for name in names if name.endswith("data.pkl")}
    return frozenset(name for name in names if (of := _TENSOR_DATA.fullmatch(name)) and of["folder"] in folders)


def _why_others_differ(content: BinaryIO, directory: int, *, is_start: bool) -> str:
    """Say why other readers may find other members than `zipfile`, which looks for the directory before the end.

    :param directory: where `zipfile` found it; torch reads the one at the place that the end names
    :param is_start: whether the file starts as an archive; torch reads no other as one
    """
    end = zipfile._EndRecData(content)  # type: ignore[attr-defined]
    # The place that newer Pythons add is that of the end record with 64 bits, where there is one.
    last = content.seek(0, io.SEEK_END) - _END_RECORD_BYTES - len(end[_COMMENT])
    content.seek(last)
    if content.read(len(_END_RECORD)) != _END_RECORD or len(end[_COMMENT]) != end[_COMMENT_BYTES]:
        return "has bytes behind the end of the archive, as if cut off"  # its end is then that of an inner archive
    content.seek(max(0, last - _LOCATOR.size))
    signature, place, _ = _LOCATOR.unpack(content.read(_LOCATOR.size).ljust(_LOCATOR.size))
    is_moved = signature == b"PK\x06\x07" and place != last - _LOCATOR.size - _END_RECORD_64_BYTES
    if is_start and (is_moved or directory != end[_DIRECTORY_PLACE]):
        return "has its directory elsewhere than its end says, so that other readers may find other members"
    return ""


def _findings_of_members(
    members: Iterator[tuple[str, Callable[[], Any]]],
    place: Place,
    budget: UnpackBudget,
    depth: int,
    data: Collection[str] = (),
) -> Iterator[ScanFinding]:
    for name, opened in members:
        inside = place.inside(name)
        try:
            with opened() as packed:
                head = packed.read(HEAD_BYTES)
                if name == MODEL_FIELDS and head.strip()[:1] in (b"", b"{"):
                    yield from _findings_of_fields(head + packed.read(), inside)
                elif name in data and not head.startswith(_ARRAY):
                    continue
                elif is_checkpoint(name, head):
                    yield from _findings_of_packed(chain([head], _chunks(packed)), inside, budget, depth)
                else:
                    yield from findings_of_pickles(io.BytesIO(head + packed.read(LOOKED_AT)), inside, is_expected=False)
        except DAMAGE as error:
            yield inside.problem(error)


class UnpackBudget:
    """How many bytes may still be unpacked of one file, and of each of its members."""

    def __init__(self, member_bytes: int = MAX_MEMBER_BYTES, total_bytes: int = MAX_UNPACKED_BYTES) -> None:
        self.member_bytes, self.left = member_bytes, total_bytes

    def unpack(self, chunks: Iterable[bytes]) -> tuple[BinaryIO, NotScannedError | None]:
        """Copy chunks into a file; return it, at its start, and why it holds only their beginning, if so."""
        target = cast(BinaryIO, SpooledTemporaryFile(max_size=_IN_MEMORY))  # noqa: SIM115 - the caller closes it
        allowed, problem = min(self.member_bytes, self.left), None
        try:
            for chunk in chunks:
                kept = target.write(chunk[:allowed])
                allowed, self.left = allowed - kept, self.left - kept
                if kept < len(chunk):
                    limit = (
                        f"{MAX_MEMBER_BYTES // MEBIBYTE} MiB in one member, or {MAX_UNPACKED_BYTES // MEBIBYTE} in all"
                    )
                    problem = NotScannedError(
                        "scan-limit", f"holds more than is unpacked ({limit}); the rest was not scanned"
                    )
                    break
        except DAMAGE as error:
            problem = problem_of(error)
        target.seek(0)
        return target, problem


def _findings_of_packed(
    chunks: Iterable[bytes], place: Place, budget: UnpackBudget, depth: int
) -> Iterator[ScanFinding]:
    unpacked, problem = budget.unpack(chunks)
    with unpacked:
        for each in findings_of_content(unpacked, place, budget, depth + 1):
            if problem is None or each.rule != "unreadable-file":
                yield each
    if problem is not None:
        yield place.problem(problem)


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


def _findings_of_fields(text: bytes, place: Place) -> Iterator[ScanFinding]:
    for name, value in parsed_fields(text).items():
        if isinstance(value, dict) and SERIALIZED in value:
            inside = replace(place.inside(name, ":"), remedy=_REMEDY)
            try:  # as leniently as Stable-Baselines3
                pickled = base64.b64decode(str.encode(value[SERIALIZED], "utf-8", "replace"))
            except (TypeError, ValueError) as error:
                yield inside.finding("unreadable-file", "warning", f"is not base64: {error}")
            else:
                yield from findings_of_pickles(io.BytesIO(pickled), inside)


def _findings_of_array(content: BinaryIO, place: Place) -> Iterator[ScanFinding]:
    """An array of objects is a pickle behind the header."""
    from numpy.lib import format as npy

    try:
        read = npy.read_array_header_1_0 if npy.read_magic(content) == (1, 0) else npy.read_array_header_2_0
        kind = read(content, max_header_size=MEBIBYTE)[2]
    except (*DAMAGE, SyntaxError, TypeError, TokenError) as error:  # what NumPy raises for headers that are none
        yield place.problem(error)
    else:
        if kind.hasobject:
            yield from findings_of_pickles(content, place)
