"""How this folder says that something is wrong: a refusal, to which the file's name is added."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from os import PathLike, fspath
from typing import BinaryIO, TypeAlias

from rlcore.errors import CheckpointError

PathOrFile: TypeAlias = "str | PathLike[str] | BinaryIO | BufferedIOBase"

_QUOTE_LIMIT = 80


class RefusedError(ValueError):
    """What is wrong with a file's content or with the values to be saved; the public functions add which file."""


@contextmanager
def refusals_name(target: PathOrFile) -> Iterator[None]:
    """Turn a RefusedError into a CheckpointError that names ``target``.

    The cause is kept only where the refusal states one, because the texts of the parsers carry whatever the file holds.
    """
    try:
        yield
    except RefusedError as refusal:
        raise CheckpointError(path_of(target), str(refusal)) from refusal.__cause__


def path_of(target: PathOrFile) -> str | None:
    """Return the path as text, or None for a file object."""
    return fspath(target) if isinstance(target, str | PathLike) else None


def quoted(text: object, limit: int = _QUOTE_LIMIT) -> str:
    """Return ``text`` as printable ASCII of bounded length, for texts that a file supplies."""
    # Cut before escaping too, so that a text of a gigabyte costs no more than a short one.
    escaped = ascii(text[: limit + 1] if isinstance(text, str | bytes) else text)
    return escaped if len(escaped) <= limit else f"{escaped[: limit - 3]}..."
