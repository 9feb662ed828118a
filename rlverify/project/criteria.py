"""The criteria of figures that are frozen before they are measured: ``criteria.toml`` in the content package.

Each ``[[frozen]]`` table has a day, a reason, and the digests of the criteria that were frozen on that day, by the id
of their claim. A criterion is everything in the catalogue that decides the verdict of a figure: experiment, quantity,
claimed interval and runs. These parts of a figure are not in its digest, so that a change of them is not reported: its
``unit``, and whether a condition is about the fix (``of_fix``). A project without the file does not freeze anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from rlverify.project.catalogue_entries import Text
from rlverify.project.toml_file import read_toml

NAME: Final = "criteria.toml"

HEAD: Final = "# Written by `rlverify freeze`. Commit a frozen criterion before you run what it decides.\n"


@dataclass(frozen=True)
class FrozenCriterion:
    """A criterion of one claim.

    :param day: on which it was frozen
    :param why: the reason for this criterion, or for the change of an earlier one
    :param after_result: whether a result was known by then
    """

    digest: str
    day: date
    why: str
    after_result: bool = False


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    day: date
    why: Text
    after_result: Annotated[bool, Field(strict=True)] = False
    claims: Annotated[dict[str, str], Field(min_length=1)]


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    frozen: tuple[_Frozen, ...] = ()


def load_criteria(folder: Path) -> Mapping[str, tuple[FrozenCriterion, ...]] | None:
    """The frozen criteria of each claim by its id, the latest last; None where the folder has no such file.

    :raises CatalogueError: naming the field of the first broken entry
    """
    path = folder / NAME
    if not path.is_file():
        return None
    content = read_toml(path, _File)
    found: dict[str, list[FrozenCriterion]] = {}
    for each in content.frozen:
        for claim_id, digest in each.claims.items():
            found.setdefault(claim_id, []).append(FrozenCriterion(digest, each.day, each.why, each.after_result))
    return {claim_id: tuple(criteria) for claim_id, criteria in found.items()}


def frozen_table(day: date, why: str, digests: Mapping[str, str], *, after_result: bool) -> str:
    """The text of one ``[[frozen]]`` table.

    :param digests: of the criteria, by id of their claim
    """
    lines = ["[[frozen]]", f"day = {day.isoformat()}", f"why = {json.dumps(why, ensure_ascii=False)}"]
    lines += ["after_result = true"] * after_result
    entries = [f'"{claim_id}" = "{digest}"' for claim_id, digest in sorted(digests.items())]
    return "\n".join([*lines, "", "[frozen.claims]", *entries, ""])
