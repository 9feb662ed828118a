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


def why_unreadable(error: ValidationError, text: str, remedy: str) -> str:
    """What is wrong with the text of a file, and what to do.

    :param remedy: what writes the file again
    """
    if not text.strip():
        return f"is empty; {remedy}"
    for each in error.errors():
        given, known = each["input"], each.get("ctx", {}).get("expected", "")
        if each["loc"] == ("schema_version",) and type(given) is int and known.isdecimal() and given > int(known):
            return f"has schema_version {given}, and this rlverify reads version {known}; upgrade rlverify"
    return f"{first_problem(error)}; {remedy}"
