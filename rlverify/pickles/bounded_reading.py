"""Unpacking that writes no more bytes than a limit, whatever the content claims about itself."""

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


def unreadable(error: BaseException) -> NotScannedError:
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
        self.member_bytes, self.left = member_bytes, total_bytes

    def unpack(self, head: bytes, packed: PackedStream) -> tuple[BinaryIO, NotScannedError | None]:
        """Copy a stream into a temporary file.

        :param head: what was read of it before
        :return: the file, at its start, and why it holds only the beginning of the stream, if so
        """
        target = cast(BinaryIO, SpooledTemporaryFile(max_size=_IN_MEMORY))  # noqa: SIM115 - the caller closes it
        problem = self._copy(head, packed, target)
        target.seek(0)
        return target, problem

    def _copy(self, chunk: bytes, packed: PackedStream, target: BinaryIO) -> NotScannedError | None:
        allowed = min(self.member_bytes, self.left)
        try:
            while chunk := chunk or packed.read1(min(MEBIBYTE, allowed + 1)):
                kept = target.write(chunk[:allowed])
                allowed, self.left = allowed - kept, self.left - kept
                if kept < len(chunk):
                    limit = (
                        f"{MAX_MEMBER_BYTES // MEBIBYTE} MiB in one member, or {MAX_UNPACKED_BYTES // MEBIBYTE} in all"
                    )
                    reason = f"holds more than is unpacked ({limit}); the rest was not scanned"
                    return NotScannedError("scan-limit", reason)
                chunk = b""
        except DAMAGE as error:
            return unreadable(error)
        return None
