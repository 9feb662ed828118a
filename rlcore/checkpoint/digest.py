"""The digest that shows accidental damage: the comment at the end of the zip file, which names its algorithm."""

from __future__ import annotations

import hashlib
import struct
from typing import Any, BinaryIO

import xxhash

from rlcore.checkpoint.refusal import RefusedError

END_RECORD = struct.Struct("<4s4H2LH")
END_SIGNATURE = b"PK\x05\x06"
MARK = b"rlcore-xxh3-128:"
"""Starts the comment of every file that is written; the hexadecimal digest of all bytes before it follows."""

_ALGORITHMS: dict[bytes, Any] = {MARK: xxhash.xxh3_128, b"rlcore-sha256:": hashlib.sha256}  # the latter is only read
_LENGTHS = {mark: len(mark) + 2 * algorithm().digest_size for mark, algorithm in _ALGORITHMS.items()}
_HELD_BYTES = 2**12


class DigestWriter:
    """What torch.save writes to: passes everything on to ``file``, and hashes it on the way.

    Errors are kept until :meth:`finish`, as C++ code calls ``write``.

    :param max_bytes: more are refused
    """

    def __init__(self, file: BinaryIO, max_bytes: int) -> None:
        self._file, self._max_bytes = file, max_bytes
        self._hash = xxhash.xxh3_128()
        self._size = 0
        self._held = b""
        self._error: Exception | None = None

    def write(self, content: bytes | memoryview) -> int:
        """Take the next bytes. The last few are held back, because the comment's length belongs into them."""
        self._size += len(content)
        if self._error is None:
            try:
                check_size(self._size, self._max_bytes)
                self._pass_on(self._held)
                self._held = bytes(content) if len(content) <= _HELD_BYTES else b""
                if not self._held:
                    self._pass_on(content)
            except (OSError, RefusedError) as error:
                self._error = error
        return len(content)

    def flush(self) -> None:
        """Do nothing; torch.save asks for it."""

    def finish(self) -> None:
        """End the file with the digest. The comment's length is hashed too, so that it cannot be changed unseen.

        :raises OSError, RefusedError: what was kept
        """
        if self._error is not None:
            raise self._error
        if end_record_position(memoryview(self._held)) + END_RECORD.size != len(self._held):
            raise RefusedError("cannot be written: torch.save gave it a comment")
        self._pass_on(self._held[:-2] + struct.pack("<H", _LENGTHS[MARK]) + MARK)
        self._file.write(self._hash.hexdigest().encode())

    def _pass_on(self, content: bytes | memoryview) -> None:
        self._hash.update(content)
        self._file.write(content)


def verify_digest(content: memoryview) -> bool:
    """Say whether the file carries a digest, having compared it with the content.

    A digest is integrity, not authenticity: whoever writes a file can also write its digest.

    :raises RefusedError: no end of a zip file, a foreign comment there, or a digest that does not fit
    """
    comment = bytes(content[end_record_position(content) + END_RECORD.size :])
    if not comment:
        return False
    for mark, algorithm in _ALGORITHMS.items():
        if comment.startswith(mark) and len(comment) == _LENGTHS[mark]:
            stored = comment[len(mark) :]
            if algorithm(content[: -len(stored)]).hexdigest().encode() == stored:
                return True
            name = mark[len("rlcore-") : -1].decode().upper()
            raise RefusedError(f"its {name} digest does not fit its content: the file was damaged or changed")
    raise RefusedError("its zip comment is damaged, or was not written by this project")


def end_record_position(content: memoryview) -> int:
    """Return where the zip end record starts, which leaves room for a digest or for nothing.

    :raises RefusedError: no end record at any of these places: truncated, or not a file of this kind
    """
    for comment_length in (0, *_LENGTHS.values()):
        position: int = len(content) - END_RECORD.size - comment_length
        if position >= 0:
            signature, *_, stored_length = END_RECORD.unpack_from(content, position)
            if (signature, stored_length) == (END_SIGNATURE, comment_length):
                return position
    raise RefusedError(
        "is truncated, has a digest of a newer version, or is not a file that torch.save wrote in its zip format"
    )


def check_size(size: int, max_bytes: int) -> None:
    """Refuse what is larger than ``max_bytes``."""
    if size > max_bytes:
        raise RefusedError(f"is larger than {max_bytes} bytes, the most that is read or written (max_bytes)")
