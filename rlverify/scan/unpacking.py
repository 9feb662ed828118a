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
_MORE: Final = (
    f"holds more than is unpacked ({MAX_MEMBER_BYTES // MEBIBYTE} MiB in one member, or "
    f"{MAX_UNPACKED_BYTES // MEBIBYTE} in all); the rest was not scanned"
)
_IN_MEMORY: Final = 16 * MEBIBYTE

_ZIP: Final = b"PK\x03\x04"
_LOCAL_HEADER_BYTES, _END_RECORD_BYTES, _END_RECORD_64_BYTES = 30, 22, 56
_LOCATOR: Final = struct.Struct("<4s4xQL")  # of the end record with 64 bits
_END_RECORD: Final = b"PK\x05\x06"
_DIRECTORY_PLACE, _COMMENT_BYTES, _COMMENT = 6, 7, 8  # in an end record as `zipfile` reads it
_ARRAY: Final = b"\x93NUMPY"
_LZMA: Final = [b"\x5d" + (n << m).to_bytes(4, "little") for n in (2, 3) for m in range(7, 31)]  # and dictionary size
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
    **dict.fromkeys((b"\xfd7zXZ\x00", *_LZMA), lambda packed: _chunks(lzma.LZMAFile(packed))),  # noqa: SIM115
    **dict.fromkeys((b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"), _zlib_chunks),
}


def is_checkpoint(name: str, head: bytes) -> bool:
    """Say whether a name or the first `HEAD_BYTES` bytes are those of a file that may hold a pickle."""
    is_archive = head.startswith((_ZIP, _ARRAY, *_COMPRESSIONS)) or _is_tar(head)
    return PurePosixPath(name).suffix.lower() in CHECKPOINT_SUFFIXES or starts_like_a_pickle(head) or is_archive


def _is_tar(head: bytes) -> bool:
    """Say whether a file begins as a tar: with the mark that the oldest format lacks, or with a right checksum."""
    try:
        return head[257:262] == b"ustar" or tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape").chksum > 0
    except tarfile.TarError:
        return False


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
    is_zip, is_tar = head.startswith(_ZIP) or ends_like_a_zip(content), _is_tar(head)
    readers = [_findings_of_zip] * is_zip + [_findings_of_tar] * is_tar
    readings = [partial(each, content, place, budget, depth) for each in readers]
    if unpacked := next((each for start, each in _COMPRESSIONS.items() if head.startswith(start)), None):
        readings.append(partial(_findings_of_packed, unpacked(content), place, budget, depth))
    elif head.startswith(_ARRAY):
        readings.append(partial(_findings_of_array, content, place))
    elif not head.startswith(_ZIP):  # what precedes a zip, or names the first member of a tar, may be anything
        is_expected = not readings or starts_like_a_pickle(head)
        readings.append(partial(findings_of_pickles, content, place, is_expected=is_expected))
    for findings in readings:  # a file may be one thing to one program and another to the next
        content.seek(0)
        try:
            yield from findings()
        except (*DAMAGE, SyntaxError, TypeError, TokenError) as error:  # the last three from NumPy, for headers
            yield place.problem(error)


def _findings_of_zip(content: BinaryIO, place: Place, budget: UnpackBudget, depth: int) -> Iterator[ScanFinding]:
    with zipfile.ZipFile(content) as archive:
        files = ((each.filename, partial(_Member, archive, each)) for each in archive.infolist() if not each.is_dir())
        yield from _findings_of_members(files, place, budget, depth, _tensor_data(archive.namelist()))
        if reason := _why_others_differ(content, archive.start_dir):
            yield place.finding("unreadable-file", "warning", reason)


def _tensor_data(names: Collection[str]) -> frozenset[str]:
    """Return the members that torch reads as the numbers of tensors, next to ``data.pkl``."""
    folders = {name.removesuffix("data.pkl") for name in names if name.endswith("data.pkl")}
    return frozenset(name for name in names if (of := _TENSOR_DATA.fullmatch(name)) and of["folder"] in folders)


def _why_others_differ(content: BinaryIO, directory: int) -> str:
    """Say why other readers may find other members than `zipfile`, which looks for the directory before the end.

    :param directory: where `zipfile` found it; torch reads the one at the place that the end names
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
    content.seek(0)  # torch reads no other file as an archive than one that starts as one
    if content.read(len(_ZIP)) == _ZIP and (is_moved or directory != end[_DIRECTORY_PLACE]):
        return "has its directory elsewhere than its end says, so that other readers may find other members"
    return ""


class _Member(zipfile.ZipExtFile):
    """A member of a zip as torch reads it; the end of `with` raises what is wrong with its header or checksum."""

    def __init__(self, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
        content: Any = archive.fp
        content.seek(member.header_offset)
        header = content.read(_LOCAL_HEADER_BYTES)
        content.seek(int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:], "little"), io.SEEK_CUR)
        super().__init__(content, "r", member)
        self._reopened = partial(archive.open, member)

    def _update_crc(self, newdata: bytes) -> None:
        self._running_crc: int = zlib.crc32(newdata, self._running_crc)

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._reopened().close()
        if self._eof and self._expected_crc not in (None, self._running_crc):  # type: ignore[attr-defined]
            raise zipfile.BadZipFile("Bad CRC-32")


def _findings_of_tar(content: BinaryIO, place: Place, budget: UnpackBudget, depth: int) -> Iterator[ScanFinding]:
    """Read a tar as GNU tar does, which goes on behind damage, and with -i behind the end."""
    with tarfile.open(fileobj=content, mode="r:", ignore_zeros=True) as tar:
        members = (each for each in tar if each.isreg() or each.type not in tarfile.SUPPORTED_TYPES)
        files = ((each.name, partial(tar.extractfile, each)) for each in members)
        yield from _findings_of_members(files, place, budget, depth)
    content.seek(0)
    with tarfile.open(fileobj=content, mode="r:") as tar:
        tar.getmembers()
        content.seek(tar.offset)
    if any(chunk.strip(b"\0") for chunk in iter(partial(content.read, MEBIBYTE), b"")):
        yield place.finding("unreadable-file", "warning", "goes on behind its end or a damaged header")


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
                elif _ZIP in (start := head + packed.read(LOOKED_AT)) and ends_like_a_zip(packed):
                    yield from _findings_of_packed(_chunks(packed), inside, budget, depth)
                else:
                    yield from findings_of_pickles(io.BytesIO(start), inside, is_expected=False)
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
                    raise NotScannedError("scan-limit", _MORE)
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

    read = npy.read_array_header_1_0 if npy.read_magic(content) == (1, 0) else npy.read_array_header_2_0
    if read(content, max_header_size=MEBIBYTE)[2].hasobject:
        yield from findings_of_pickles(content, place)
