"""Unpacking that writes no more bytes than a limit, whatever the content claims about itself."""

from __future__ import annotations

import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterable
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, Final, cast

MEBIBYTE: Final = 2**20
MAX_MEMBER_BYTES: Final = 256 * MEBIBYTE
"""How much is read of one member of an archive, or of one compressed file."""
MAX_UNPACKED_BYTES: Final = 1024 * MEBIBYTE
"""How much is unpacked of one file, all its members and levels together."""
_IN_MEMORY: Final = 16 * MEBIBYTE


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
