"""Reading that never takes more memory or bytes than a limit, whatever the content claims about itself."""

from __future__ import annotations

import lzma
import tarfile
import zipfile
import zlib
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, Final, Protocol, cast

MEBIBYTE: Final = 2**20
MAX_MEMBER_BYTES: Final = 256 * MEBIBYTE
"""How much is read of one member of an archive, or of one compressed file."""
MAX_UNPACKED_BYTES: Final = 1024 * MEBIBYTE
"""How much is unpacked of one file, all its members and levels together."""
_IN_MEMORY: Final = 16 * MEBIBYTE

DAMAGE: Final = (
    OSError,
    EOFError,
    ValueError,
    OverflowError,
    NotImplementedError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    tarfile.TarError,
)
"""What the readers of archives of the standard library raise for content that is damaged, encrypted or unknown."""


class NotScannedError(Exception):
    """Content that could not be scanned to its end.

    :param rule: ``unreadable-file`` or ``scan-limit``
    """

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(reason)
        self.rule = rule
        self.reason = reason


def unreadable(error: Exception) -> NotScannedError:
    """Return the error of a reader as what a scan reports."""
    text = " ".join(str(error).split()) or type(error).__name__
    return NotScannedError("unreadable-file", f"cannot be read: {text[:200]}")


class PackedStream(Protocol):
    """A stream that unpacks while it is read, such as a member of an archive."""

    def read1(self, size: int, /) -> bytes:
        """Return at most ``size`` bytes, and none at the end. What precedes damage comes before the error."""


class UnpackBudget:
    """How many bytes may still be unpacked of one file, and of each of its members."""

    def __init__(self, member_bytes: int = MAX_MEMBER_BYTES, total_bytes: int = MAX_UNPACKED_BYTES) -> None:
        self.member_bytes, self.total_bytes = member_bytes, total_bytes
        self.left = total_bytes

    def unpack(self, packed: PackedStream, most: int | None = None) -> tuple[BinaryIO, NotScannedError | None]:
        """Copy a stream into a temporary file.

        :param most: how many bytes, if fewer than of other members
        :return: the file, at its start, and why it holds only the beginning of the stream, if so
        """
        target = cast(BinaryIO, SpooledTemporaryFile(max_size=_IN_MEMORY))  # noqa: SIM115 - the caller closes it
        problem = self._copy(packed, target, self.member_bytes if most is None else most)
        target.seek(0)
        return target, problem

    def _copy(self, packed: PackedStream, target: BinaryIO, most: int) -> NotScannedError | None:
        allowed = min(most, self.left)
        while True:
            try:
                chunk = packed.read1(min(MEBIBYTE, allowed + 1))
            except DAMAGE as error:
                return unreadable(error)
            if not chunk:
                return None
            kept = target.write(chunk[:allowed])
            allowed -= kept
            self.left -= kept
            if kept < len(chunk):
                limit = f"{_size(most)} when unpacked"
                if not self.left:
                    limit = f"{_size(self.total_bytes)} of unpacked content together"
                return NotScannedError("scan-limit", f"holds more than {limit}; the rest was not scanned")


def _size(count: int) -> str:
    return f"{count // MEBIBYTE} MiB" if count >= MEBIBYTE else f"{count} bytes"
