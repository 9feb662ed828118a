"""What defects do to a training run: ``effects.toml`` in the content package, which a project may write.

``about`` is the page that says how this was measured, relative to the folder of reports; ``[effects]`` has a text for
each claim, by its id.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict

from rlverify.project.catalogue_entries import Text
from rlverify.project.toml_file import read_toml

NAME: Final = "effects.toml"


@dataclass(frozen=True)
class Effects:
    """The texts by id of the claim, and the page about them."""

    about: str = ""
    texts: dict[str, str] = field(default_factory=dict)


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    about: Text
    effects: dict[str, Text]


def load_effects(folder: Path) -> Effects:
    """The effects in a content package's folder; none where it has no such file.

    :raises CatalogueError: naming the field of the first broken entry
    """
    path = folder / NAME
    if not path.is_file():
        return Effects()
    content = read_toml(path, _File)
    return Effects(content.about, content.effects)
