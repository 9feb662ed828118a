"""Reads files that this program wrote; what is wrong with one is told with its name and the field."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from rlverify.records.errors import EvidenceError


def text_of(path: Path) -> str:
    """The text of a file.

    :raises EvidenceError: if it cannot be read, or is not UTF-8
    """
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise EvidenceError(path, f"cannot be read: {error}") from error


def first_problem(error: ValidationError) -> str:
    """The first thing that is wrong with the content of a file, after the field that it is wrong with."""
    first = error.errors()[0]
    field = ".".join(map(str, first["loc"]))
    return f"{field}: {first['msg']}" if field else first["msg"]
