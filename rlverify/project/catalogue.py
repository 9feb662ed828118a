"""Loads the catalogue: TOML files with claims, each checked before any of them is used.

A file has one ``[[claim]]`` table for each claim; `rlverify.project.catalogue_entries.ClaimEntry` lists its fields.
Tables of other names are for the pages of the project.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from rlverify.project.catalogue_entries import (
    ClaimedFigureEntry,
    ClaimEntry,
    ConditionEntry,
    EarlierEntry,
)
from rlverify.project.citations import Documents
from rlverify.project.settings import toml_of
from rlverify.records.claims import Claim, DocumentedProblem, EarlierCriterion, Figure
from rlverify.records.errors import CatalogueError, suggestion

FIELDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "problem": DocumentedProblem.__dataclass_fields__,
    "figure": ClaimedFigureEntry.model_fields,
    "condition": ConditionEntry.model_fields,
    "earlier": EarlierEntry.model_fields,
}
"""Of each inner table, by the field of the entry that holds it."""
UNKNOWN: Final = ("extra_forbidden", "unexpected_keyword_argument")
"""What pydantic calls a field that a table does not have."""


def load(folder: Path, documents: Documents) -> tuple[Claim, ...]:
    """Return the claims of a folder's TOML files, in the order of the file names; its conditions follow each claim.

    :raises CatalogueError: naming file, entry and field of the first broken entry
    """
    entries = [(path, entry) for path in _files(folder) for entry in _load_file(path, documents)]
    if not entries:
        raise CatalogueError(str(folder), "", "claim", "there must be one or more [[claim]] tables")
    _check_ids(entries)
    return tuple(
        each
        for path, entry in entries
        for claim in (_claim(path, entry),)
        for each in (claim, *(_under_condition(claim, condition) for condition in entry.condition))
    )


def _files(folder: Path) -> list[Path]:
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix == ".toml")
    except OSError as error:
        raise CatalogueError(str(folder), "", "", f"cannot be read: {error.strerror}") from error
    if not files:
        raise CatalogueError(str(folder), "", "", "holds no .toml file, so there is nothing to verify")
    return files


def _check_ids(entries: Sequence[tuple[Path, ClaimEntry]]) -> None:
    """Check that every id is used once, and none named that does not exist."""
    first: dict[str, Path] = {}
    for path, entry in entries:
        if entry.id in first:
            raise CatalogueError(path.name, entry.id, "id", f"already used in {first[entry.id].name}")
        first[entry.id] = path
    for path, entry in entries:
        if entry.part_of is not None and (entry.part_of not in first or entry.part_of == entry.id):
            raise CatalogueError(path.name, entry.id, "part_of", f"there is no other entry {entry.part_of!r}")


def _claim(path: Path, entry: ClaimEntry) -> Claim:
    fields = ClaimEntry.model_fields.keys() - {"condition", "earlier", "figure", "expected"}
    given = {name: value for name in fields if (value := getattr(entry, name)) is not None}
    given = {"area": path.stem, "probe": "", "seeds": (0,), "expected_verdict": entry.expected, **given}
    if entry.figure is not None:
        given |= {"figure": Figure(**entry.figure.model_dump()), "seeds": tuple(range(entry.figure.runs))}
    return Claim(document=path.stem, earlier=_earlier(entry), **given)


def _earlier(entry: ClaimEntry | ConditionEntry) -> tuple[EarlierCriterion, ...]:
    return tuple(
        EarlierCriterion(each.criterion, each.verdict, each.until.isoformat(), each.why) for each in entry.earlier
    )


def _under_condition(claim: Claim, entry: ConditionEntry) -> Claim:
    """A claim as a figure that is measured under another condition; its id is that of the claim and the condition."""
    own = {name: value for name in ("quantity", "unit", "claimed") if (value := getattr(entry, name)) is not None}
    figure = (
        Figure(**own, runs=entry.runs, power=0.0, pilot="", repeats=entry.repeats, document_gives="statement")
        if claim.figure is None
        else replace(claim.figure, **own, runs=entry.runs, power=0.0, pilot="", repeats=entry.repeats, tolerance=0.0)
    )
    return replace(
        claim,
        id=f"{claim.id}@{entry.name}",
        title=f"{claim.title}: {entry.title}",
        kind="figure",
        probe="",
        seeds=tuple(range(entry.runs)),
        fault=None,
        shows=(),
        against_document=False,
        documented_fix=None,
        fix_statement="",
        expected_fix_grade=None,
        killed_by=(),
        part_of="",
        problem=None,
        experiment=entry.experiment,
        figure=figure,
        expected_verdict=entry.expected,
        condition_of=claim.id,
        condition=entry.title,
        of_fix=entry.of_fix,
        invariant="",
        settings="",
        earlier=_earlier(entry),
    )


def _load_file(path: Path, documents: Documents) -> Sequence[ClaimEntry]:
    content = toml_of(path, partial(CatalogueError, path.name, "", ""))
    entries = content.pop("claim", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise CatalogueError(path.name, "", "claim", "must be one or more [[claim]] tables")
    for name, value in content.items():
        if get_close_matches(name, ["claim"]):
            raise CatalogueError(path.name, "", name, "is no table; did you mean [[claim]]?")
        if not isinstance(value, list) and name != "document":
            raise CatalogueError(path.name, "", name, "is outside every [[claim]]")
    return [_load_entry(path, number, entry, documents) for number, entry in enumerate(entries, start=1)]


def _load_entry(path: Path, number: int, table: Mapping[str, Any], documents: Documents) -> ClaimEntry:
    try:
        return ClaimEntry.model_validate(table, context={"documents": documents})
    except ValidationError as error:
        problems: list[Any] = error.errors()  # a misspelt field comes before the one that is missing because of it
        problems.sort(key=lambda problem: problem["type"] not in UNKNOWN)
        (field, reason), *others = map(_explain, problems)
        more = f" (wrong as well: {', '.join(each for each, _ in others)})" if others else ""
        raise CatalogueError(path.name, str(table.get("id", f"entry {number}")), field, reason + more) from error


def _explain(problem: Mapping[str, Any]) -> tuple[str, str]:
    field = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "value_error":
        *place, said = problem["ctx"]["error"].args
        return (place[0] if place else field), said
    if problem["type"] in UNKNOWN:
        *outer, name = problem["loc"]
        known = [ClaimEntry.model_fields, *(FIELDS[each] for each in outer if each in FIELDS)][-1]
        return field, f"no such field{suggestion(name, known)}"
    return field, f"{problem['msg']}, got {problem['input']!r}" if problem["type"] != "missing" else "is missing"
