"""How reading and writing report what is wrong: errors that name the file, whatever was raised below."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from os import PathLike, fspath
from typing import BinaryIO, Literal, TypeAlias

import torch

from rlcore.errors import CheckpointError, RLCoreError, SettingError, StateError

PathOrFile: TypeAlias = "str | PathLike[str] | BinaryIO | BufferedIOBase"


class RefusedError(ValueError):
    """A file's content or values to be saved are wrong; the public functions add the name of the file."""


@contextmanager
def refusals_name(target: PathOrFile) -> Iterator[None]:
    """Turn a refusal of content or state into a CheckpointError that names ``target``.

    The cause is kept only where the refusal states one, because the texts of the parsers carry whatever the file holds.
    """
    try:
        yield
    except (RefusedError, StateError) as refusal:
        raise CheckpointError(path_of(target), str(refusal)) from refusal.__cause__
    except CheckpointError as error:
        if error.path is not None:
            raise
        raise CheckpointError(path_of(target), error.reason) from error.__cause__


@contextmanager
def unusable(field: str) -> Iterator[None]:
    """Turn every unforeseen error into a StateError that names ``field``; errors and warnings of rlcore pass.

    :param field: the part of the file that is decoded or restored
    """
    try:
        yield
    except (RLCoreError, RefusedError, Warning, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # the libraries below raise anything for values of a hostile file
        reason = f"{type(error).__name__}: {quoted(str(error), 200)}"
        raise StateError(
            f"{field} cannot be used ({reason}); the file is damaged or of another version of the code that it is "
            "loaded into"
        ) from error


def require_place(path: object, method: Literal["read", "write"]) -> None:
    """
    :param method: what a file object must have
    :raises SettingError: for anything but the path of a file or such a file object
    """
    if not isinstance(path, str | PathLike) and not hasattr(path, method):
        raise SettingError("path", f"path={path!r:.80} is neither a path nor a binary file object; give one")
    if path == "":
        raise SettingError("path", "path='' names no file; give a name")


def path_of(target: PathOrFile) -> str | None:
    """Return the path as text, or None for a file object."""
    return fspath(target) if isinstance(target, str | PathLike) else None


def quoted(text: object, limit: int = 80) -> str:
    """Return ``text`` as printable ASCII of bounded length, for texts that a file supplies."""
    # Cut before escaping too, so that a text of a gigabyte costs no more than a short one.
    escaped = ascii(text[: limit + 1] if isinstance(text, str | bytes) else text)
    return escaped if len(escaped) <= limit else f"{escaped[: limit - 3]}..."
