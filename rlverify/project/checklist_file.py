"""Loads the checklists of documents: ``checklists.toml`` in the content package.

One ``[[checklist]]`` per conclusion, and in it one ``[[checklist.item]]`` per criterion with the ids of the claims that
answer it. Unknown ids are allowed; the report then says that the criterion cannot be decided.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from rlverify.project.catalogue_entries import Cite, Identifier, Text
from rlverify.project.citations import Documents
from rlverify.project.toml_file import read_toml
from rlverify.records.checklists import Checklist, ChecklistItem

NAME = "checklists.toml"


class _Item(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    item: Text
    documented: Text
    met: Annotated[bool, Field(strict=True)]
    cites: Annotated[tuple[Cite, ...], Field(min_length=1)]
    claims: tuple[Identifier, ...] = ()
    core_claims: tuple[Identifier, ...] = ()
    tests: Annotated[str, Field(pattern=r"^[^\s:]*$")] = ""


class _Checklist(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Identifier
    title: Text
    documented: Text
    cites: Annotated[tuple[Cite, ...], Field(min_length=1)]
    item: Annotated[tuple[_Item, ...], Field(min_length=1)]


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    checklist: tuple[_Checklist, ...]


def load_checklists(folder: Path, documents: Documents) -> tuple[Checklist, ...]:
    """The checklists in a content package's folder; none where it has no such file.

    :raises CatalogueError: naming the field of the first broken entry
    """
    path = folder / NAME
    if not path.is_file():
        return ()
    content = read_toml(path, _File, {"documents": documents})
    return tuple(_checklist(each) for each in content.checklist)


def _checklist(entry: _Checklist) -> Checklist:
    items = tuple(
        ChecklistItem(each.item, each.documented, each.met, each.cites, each.claims, each.tests, each.core_claims)
        for each in entry.item
    )
    return Checklist(entry.id, entry.title, entry.documented, entry.cites, items)
