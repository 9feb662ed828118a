"""Loads the catalogue: TOML files with claims, each checked before any of them is used.

A file has one ``[[claim]]`` table for each claim; `rlverify.project.catalogue_entries.ClaimEntry` lists its fields. It
may have these tables as well:

- ``[[untestable]]`` names lines of a document that state nothing that could be tested.
- ``[[untested]]`` names lines that state something testable that no claim measures, even if a claim cites them.
- ``[[contradiction]]`` names statements that cannot all be true.
- ``[[cause]]`` is the one reason of several claims.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from rlverify.project.catalogue_entries import (
    IDENTIFIER,
    CauseEntry,
    ClaimedFigureEntry,
    ClaimEntry,
    ConditionEntry,
    ContradictionEntry,
    DocumentedProblemEntry,
    EarlierEntry,
    QuotationEntry,
    UntestableEntry,
    UntestedEntry,
)
from rlverify.project.citations import Documents
from rlverify.project.settings import toml_of
from rlverify.records.claims import (
    Cause,
    Claim,
    Contradiction,
    DocumentedProblem,
    EarlierCriterion,
    Figure,
    Quotation,
    UntestedLines,
)
from rlverify.records.errors import CatalogueError, suggestion

SCHEMA_VERSION: Final = 1
"""Of the files; one without ``schema_version`` has this one."""

TABLES: Mapping[str, type[BaseModel]] = {
    "claim": ClaimEntry,
    "untestable": UntestableEntry,
    "untested": UntestedEntry,
    "contradiction": ContradictionEntry,
    "cause": CauseEntry,
}
NUMBERS: Final = ("seeds", "figure.claimed")
"""The fields that are lists of numbers."""
INNER_TABLES: Mapping[str, type[BaseModel]] = {
    "problem": DocumentedProblemEntry,
    "figure": ClaimedFigureEntry,
    "quotes": QuotationEntry,
    "condition": ConditionEntry,
    "earlier": EarlierEntry,
}
"""By the field of the entry that holds them."""


@dataclass(frozen=True)
class Catalogue:
    """All that the files of a folder say, in the order of the file names and of the entries."""

    claims: tuple[Claim, ...]
    untestable: tuple[UntestedLines, ...]
    contradictions: tuple[Contradiction, ...]
    causes: tuple[Cause, ...] = ()
    untested: tuple[UntestedLines, ...] = ()

    @property
    def cites(self) -> tuple[str, ...]:
        """Every citation in it."""
        quoted = [quote.cite for each in self.contradictions for quote in each.quotes]
        stated = [cite for claim in self.claims for cite in claim.cites]
        return (*quoted, *stated, *(cite for each in (*self.untestable, *self.untested) for cite in each.cites))


def load(folder: Path, documents: Documents) -> Catalogue:
    """All that the TOML files of a folder say.

    :param documents: what the entries may cite
    :raises CatalogueError: naming file, entry and field of the first broken entry
    """
    entries = [(path, entry) for path in _files(folder) for entry in _load_file(path, documents)]
    _check_ids(entries)
    claims = tuple(
        each
        for path, entry in entries
        if isinstance(entry, ClaimEntry)
        for claim in (_claim(path, entry),)
        for each in (claim, *(_under_condition(claim, condition) for condition in entry.condition))
    )
    _check_untested(entries, documents)
    untestable, untested = (
        tuple(UntestedLines(entry.cites, entry.why) for _, entry in entries if isinstance(entry, kind))
        for kind in (UntestableEntry, UntestedEntry)
    )
    contradictions = tuple(_contradiction(entry) for _, entry in entries if isinstance(entry, ContradictionEntry))
    causes = tuple(Cause(entry.id, entry.text) for _, entry in entries if isinstance(entry, CauseEntry))
    return Catalogue(claims, untestable, contradictions, causes, untested)


def _files(folder: Path) -> list[Path]:
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix == ".toml")
    except OSError as error:
        raise CatalogueError(str(folder), "", "", f"cannot be read: {error.strerror}") from error
    if not files:
        raise CatalogueError(str(folder), "", "", "holds no .toml file, so there is nothing to verify")
    return files


def _check_ids(entries: Sequence[tuple[Path, BaseModel]]) -> None:
    """Every id once, and none named that does not exist."""
    first: dict[str, Path] = {}
    for path, entry in entries:
        if isinstance(entry, (ClaimEntry, ContradictionEntry, CauseEntry)):
            if entry.id in first:
                raise CatalogueError(path.name, entry.id, "id", f"already used in {first[entry.id].name}")
            first[entry.id] = path
    for path, entry in entries:
        named: tuple[str, ...] = ()
        if isinstance(entry, ClaimEntry) and entry.part_of is not None:
            field, named, own = "part_of", (entry.part_of,), entry.id
        elif isinstance(entry, ContradictionEntry):
            field, named, own = "settled_by", entry.settled_by, entry.id
        for name in named:
            if name not in first or name == own:
                raise CatalogueError(path.name, own, field, f"there is no other entry {name!r}")
        if isinstance(entry, ClaimEntry) and entry.cause is not None and entry.cause not in first:
            raise CatalogueError(path.name, entry.id, "cause", f"there is no [[cause]] {entry.cause!r}")


def _check_untested(entries: Sequence[tuple[Path, BaseModel]], documents: Documents) -> None:
    """No line both untested and untestable."""
    untestable = [cite for _, entry in entries if isinstance(entry, UntestableEntry) for cite in entry.cites]
    for path, entry in entries:
        for cite in entry.cites if isinstance(entry, UntestedEntry) else ():
            if documents.positions([cite]) & documents.positions(untestable):
                raise CatalogueError(path.name, "", "untested", f"{cite} is untestable as well; remove one of the two")


def _claim(path: Path, entry: ClaimEntry) -> Claim:
    given = {
        name: value for name, value in entry.model_dump(exclude={"condition", "earlier"}).items() if value is not None
    }
    given["expected_verdict"] = given.pop("expected")
    given = {"area": path.stem, "probe": "", "seeds": (0,), **given}
    if entry.problem is not None:
        given["problem"] = DocumentedProblem(**entry.problem.model_dump())
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


def _contradiction(entry: ContradictionEntry) -> Contradiction:
    quotes = tuple(Quotation(quote.cite, quote.text) for quote in entry.quotes)
    return Contradiction(entry.id, entry.statement, quotes, entry.measured, entry.settled_by)


def _load_file(path: Path, documents: Documents) -> Sequence[BaseModel]:
    content = toml_of(path, partial(CatalogueError, path.name, "", ""))
    version = content.get("schema_version", SCHEMA_VERSION)
    if type(version) is not int or not 1 <= version <= SCHEMA_VERSION:
        known = f"this rlverify reads up to version {SCHEMA_VERSION}; upgrade it, or correct the file"
        raise CatalogueError(path.name, "", "schema_version", f"{version!r} is unknown; {known}")
    if content.get("document", path.stem) != path.stem:
        raise CatalogueError(path.name, "", "document", f"must be {path.stem!r}, the name of the file")
    if unknown := sorted(set(content) - {"schema_version", "document", *TABLES}):
        close = get_close_matches(unknown[0], TABLES, 1)
        meant = f"is no table; did you mean [[{close[0]}]]?" if close else "is outside every [[claim]]"
        raise CatalogueError(path.name, "", unknown[0], meant)
    tables = {name: content[name] for name in TABLES if name in content}
    for name, entries in tables.items():
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise CatalogueError(path.name, "", name, f"must be one or more [[{name}]] tables")
    if not any(tables.values()):
        raise CatalogueError(path.name, "", "claim", "must be one or more [[claim]] tables")
    return [
        _load_entry(path, kind, number, entry, documents)
        for kind, entries in tables.items()
        for number, entry in enumerate(entries, start=1)
    ]


def _load_entry(path: Path, kind: str, number: int, table: Mapping[str, Any], documents: Documents) -> BaseModel:
    try:
        return TABLES[kind].model_validate(table, context={"documents": documents})
    except ValidationError as error:
        name = str(table.get("id", f"entry {number}" if kind == "claim" else f"{kind} {number}"))
        problems: list[Any] = error.errors()  # a misspelt field comes before the one that is missing because of it
        problems.sort(key=lambda problem: problem["type"] != "extra_forbidden")
        (field, reason), *others = (_explain(problem, TABLES[kind]) for problem in problems)
        more = f" (wrong as well: {', '.join(each for each, _ in others)})" if others else ""
        raise CatalogueError(path.name, name, field, reason + more) from error


def _explain(problem: Mapping[str, Any], kind: type[BaseModel]) -> tuple[str, str]:
    field = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "value_error":
        *place, said = problem["ctx"]["error"].args
        return (place[0] if place else field), said
    if problem["type"] == "extra_forbidden":
        *outer, name = problem["loc"]
        tables = [INNER_TABLES[each] for each in outer if each in INNER_TABLES]
        table = [kind, *tables][-1]
        return field, f"no such field{suggestion(name, table.model_fields)}"
    if problem["type"] == "tuple_type":
        example = "[0, 1]" if field in NUMBERS else '["..."]'
        return field, f"must be a list, as in {example}, got {problem['input']!r}"
    if problem["type"] == "too_short":
        return field, f"needs {problem['ctx']['min_length']} or more entries"
    if problem["type"] == "string_pattern_mismatch":
        letters, example = ("capital", "BUG-1") if problem["ctx"]["pattern"] == IDENTIFIER else ("small", "a-name")
        wanted = f"{letters} letters and digits, joined by hyphens as in {example}"
        return field, f"must be of {wanted}, got {problem['input']!r}"
    return field, f"{problem['msg']}, got {problem['input']!r}" if problem["type"] != "missing" else "is missing"
