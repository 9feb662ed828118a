"""What torch.save writes is counted and hashed on its way to the file, and the end of a zip file is found again."""

from __future__ import annotations

import io
import struct

import pytest

from rlcore.checkpoint.digest import MARK, DigestWriter, end_record_position, verify_digest
from rlcore.checkpoint.refusal import RefusedError

END = b"PK\x05\x06" + bytes(18)


def written(*parts: bytes, max_bytes: int = 10_000) -> bytes:
    file = io.BytesIO()
    writer = DigestWriter(file, max_bytes)
    assert [writer.write(part) for part in parts] == [len(part) for part in parts]
    writer.finish()
    return file.getvalue()


@pytest.mark.parametrize("parts", [(END,), (b"a" * 5000, b"b" * 100, END), (b"a" * 100, b"b" * 5000, END)])
def test_everything_is_written_in_its_order_and_the_digest_behind_it_fits(parts: tuple[bytes, ...]) -> None:
    content = written(*parts)
    assert content[: -34 - len(MARK)] == b"".join(parts)[:-2]
    assert content[-32 - len(MARK) : -32] == MARK
    assert verify_digest(memoryview(content))


def test_as_many_bytes_are_written_as_may_be_and_no_more() -> None:
    parts = (b"a" * 5000, b"b" * 100, END)
    written(*parts, max_bytes=5122)
    with pytest.raises(RefusedError, match="larger than 5121 bytes"):
        written(*parts, max_bytes=5121)


def test_the_first_error_of_the_file_is_raised_in_the_end() -> None:
    class Full(io.BytesIO):
        def write(self, content: bytes) -> int:  # type: ignore[override]
            if content:
                raise OSError(f"no room for {content[:1].decode()}")
            return 0

    writer = DigestWriter(Full(), 10_000)
    for part in (b"a" * 5000, b"b" * 5000, END):
        writer.write(part)
    with pytest.raises(OSError, match=r"^no room for a$"):
        writer.finish()


def test_a_file_that_has_a_comment_already_gets_no_digest() -> None:
    length = len(MARK) + 32
    with pytest.raises(RefusedError, match="gave it a comment"):
        written(END[:-2] + struct.pack("<H", length) + bytes(length))


def test_an_end_record_is_found_where_it_is_all_there_is_and_nowhere_else() -> None:
    assert end_record_position(memoryview(b"PK\x05\x06" + bytes(18))) == 0
    for content in (b"", bytes(22), bytes(1000), b"PK\x05\x06" + bytes(17)):
        with pytest.raises(RefusedError, match="is truncated"):
            end_record_position(memoryview(content))
