"""Reads a TOML file, and checks it before any of it is used."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from rlverify.records.errors import CatalogueError

Content = TypeVar("Content", bound=BaseModel)


def read_toml(path: Path, kind: type[Content], context: dict[str, Any] | None = None) -> Content:
    """What a file says.

    :param context: what the validators of ``kind`` are given
    :raises CatalogueError: if it cannot be read; naming the field of its first broken entry
    """
    content = toml_of(path, partial(CatalogueError, path.name, "", ""))
    try:
        return kind.model_validate(content, context=context)
    except ValidationError as error:
        problem: Any = error.errors()[0]
        raise CatalogueError(path.name, "", ".".join(map(str, problem["loc"])), problem["msg"]) from error


def toml_of(path: Path, broken: Callable[[str], Exception]) -> dict[str, Any]:
    """What a file says, unchecked.

    :param broken: makes the error for a file that cannot be read, from the reason
    """
    try:
        return tomllib.loads(path.read_bytes().decode())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise broken(f"cannot be read: {error}") from error
