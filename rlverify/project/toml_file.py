"""Reads a TOML file of a content package, checked before any of it is used."""

from __future__ import annotations

import tomllib
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
    try:
        return kind.model_validate(tomllib.loads(path.read_bytes().decode()), context=context)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CatalogueError(path.name, "", "", f"cannot be read: {error}") from error
    except ValidationError as error:
        problem: Any = error.errors()[0]
        raise CatalogueError(path.name, "", ".".join(map(str, problem["loc"])), problem["msg"]) from error
