"""Loads the catalogue: one TOML file per source document, each claim checked before any of them is used.

A file reads ``document = "<its own name without .toml>"``, then one ``[[claim]]`` table per claim with the fields of
`verification.model.Claim` (all but ``document``), one ``[[aside]]`` per stretch of a document that states nothing that
could be tested, and one ``[[contradiction]]`` per pair of statements of which one must be wrong.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from verification.citations import Citation
from verification.errors import CatalogueError
from verification.model import Aside, Claim, Contradiction, Figure, FixGrade, Gives, Kind, Problem, Quotation, Verdict

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Identifier = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9]*(-[A-Z0-9]+)*$")]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
Seed = Annotated[int, Field(strict=True, ge=0, lt=2**32)]

MINIMUM_RUNS = 5
"""Paired runs of a figure; resampling fewer gives too few different means for an interval."""


def _citation(text: str) -> str:
    Citation.parse(text)
    return text


Cite = Annotated[str, AfterValidator(_citation)]

EXPECTED_WITH_FAULT = (Verdict.CONFIRMED, Verdict.NOT_REPRODUCED)
EXPECTED_WITHOUT_FAULT = (Verdict.CONFIRMED, Verdict.REFUTED)


class ProblemEntry(BaseModel):
    """The ``[claim.problem]`` table of a claim."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    category: str = ""
    components: tuple[Text, ...] = ()
    scenario: tuple[Text, ...] = ()
    impact: str = ""
    recommendation: str = ""
    priority: str = ""
    probability: str = ""
    effort: str = ""


class FigureEntry(BaseModel):
    """The ``[claim.figure]`` table of a claim."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    quantity: Text
    unit: Text
    claimed: tuple[float, float]
    runs: Annotated[int, Field(strict=True, ge=MINIMUM_RUNS)]
    power: Annotated[float, Field(ge=0.8, le=1)]
    pilot: Text
    tolerance: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    document_gives: Gives = "interval"

    @field_validator("claimed")
    @classmethod
    def _can_be_true_and_false(cls, claimed: tuple[float, float]) -> tuple[float, float]:
        low, high = claimed
        if not low < high:
            raise ValueError(f"from {low:g} to {high:g} holds no interval; write the lower end first")
        if math.isinf(low) and math.isinf(high):
            raise ValueError("every number lies between its ends, so that nothing could refute it")
        return claimed


class ClaimEntry(BaseModel):
    """One ``[[claim]]`` table as it is written."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Identifier
    title: Text
    kind: Kind
    area: Text
    section: Text
    statement: Text
    if_true: Text
    documented_status: Text
    expected_verdict: Verdict
    probe: Name | None = None
    modules: Annotated[tuple[Text, ...], Field(min_length=1)]
    seeds: tuple[Seed, ...] = ()
    fault: Name | None = None
    shows: tuple[Text, ...] = ()
    against_document: Annotated[bool, Field(strict=True)] = False
    documented_fix: Name | None = None
    fix_statement: Text | None = None
    expected_fix_grade: FixGrade | None = None
    root_cause: Text | None = None
    severity: Text | None = None
    killed_by: tuple[Text, ...] = ()
    cites: tuple[Cite, ...] = ()
    part_of: Identifier | None = None
    problem: ProblemEntry | None = None
    experiment: Name | None = None
    figure: FigureEntry | None = None

    @model_validator(mode="after")
    def _is_measured_in_one_way(self) -> ClaimEntry:
        is_figure = self.kind == "figure"
        by_probe, by_experiment = ("probe", "seeds", "fault", "documented_fix"), ("experiment", "figure")
        needed, unused = (by_experiment, by_probe) if is_figure else (by_probe[:2], by_experiment)
        told = f"a {self.kind} is measured by its {needed[0]}"
        for field in needed:
            if not getattr(self, field):
                raise ValueError(f"{field}: is missing; {told}")
        for field in unused:
            if getattr(self, field):
                raise ValueError(f"{field}: {told}; leave this out")
        return self

    @model_validator(mode="after")
    def _fields_agree(self) -> ClaimEntry:
        needs_fault = self.kind in ("defect", "null")
        if needs_fault and self.fault is None:
            raise ValueError(f"fault: a {self.kind} needs the fault that puts it back")
        if self.documented_fix is not None and self.fault is None:
            raise ValueError("documented_fix: a fix is measured beside the fault that it mends; name the fault")
        for field in ("expected_fix_grade", "fix_statement"):
            if (self.documented_fix is None) != (getattr(self, field) is None):
                raise ValueError(f"{field}: stands with documented_fix, and only with it")
        allowed = EXPECTED_WITHOUT_FAULT if self.fault is None else EXPECTED_WITH_FAULT
        if self.expected_verdict not in allowed:
            choice = " or ".join(verdict.value for verdict in allowed)
            raise ValueError(
                f"expected_verdict: {'without' if self.fault is None else 'with'} a fault it can be {choice}"
            )
        if self.kind == "null" and self.expected_verdict is not Verdict.NOT_REPRODUCED:
            raise ValueError("expected_verdict: a null fault changes nothing, so expect NOT REPRODUCED")
        if self.fault is not None and self.expected_verdict is Verdict.CONFIRMED and not self.killed_by:
            raise ValueError("killed_by: a fault that is expected to break something must be noticed; name the tests")
        return self

    @model_validator(mode="after")
    def _document_gives_the_interval(self) -> ClaimEntry:
        if self.figure is None or self.figure.document_gives != "interval" or not self.cites:
            return self
        lines = [line for cite in self.cites for line in Citation.parse(cite).text.splitlines()]
        ends = {abs(end) for end in self.figure.claimed if math.isfinite(end)}
        if not any(ends <= {float(number) for number in re.findall(r"\d+(?:\.\d+)?", line)} for line in lines):
            raise ValueError(
                f"figure.document_gives: no cited line has {' and '.join(f'{end:g}' for end in sorted(ends))}; if the "
                'interval is our criterion, write "statement", and "nothing" if the statement is implied as well'
            )
        return self

    @model_validator(mode="after")
    def _lists_fit(self) -> ClaimEntry:
        for field in ("killed_by", "shows"):
            if getattr(self, field) and (self.fault is None or self.expected_verdict is not Verdict.CONFIRMED):
                raise ValueError(f"{field}: nothing is expected to notice this; leave it out, or expect CONFIRMED")
        for field in ("seeds", "shows"):
            if len(set(getattr(self, field))) != len(getattr(self, field)):
                raise ValueError(f"{field}: each of them once")
        return self


class AsideEntry(BaseModel):
    """One ``[[aside]]`` table as it is written."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cites: Annotated[tuple[Cite, ...], Field(min_length=1)]
    why: Text


class QuotationEntry(BaseModel):
    """One of the ``quotes`` of a contradiction."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cite: Cite
    text: Text

    @model_validator(mode="after")
    def _is_there(self) -> QuotationEntry:
        if self.text not in Citation.parse(self.cite).text:
            raise ValueError(f"{self.text!r} does not stand in {self.cite}")
        return self


class ContradictionEntry(BaseModel):
    """One ``[[contradiction]]`` table as it is written."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Identifier
    statement: Text
    quotes: Annotated[tuple[QuotationEntry, ...], Field(min_length=2)]
    measured: Text
    settled_by: tuple[Identifier, ...] = ()


TABLES: Mapping[str, type[BaseModel]] = {"claim": ClaimEntry, "aside": AsideEntry, "contradiction": ContradictionEntry}


@dataclass(frozen=True)
class Catalogue:
    """All that the files of a folder say, in the order of the file names and of the entries."""

    claims: tuple[Claim, ...]
    asides: tuple[Aside, ...]
    contradictions: tuple[Contradiction, ...]

    @property
    def cites(self) -> tuple[str, ...]:
        """Every citation in it."""
        return (*self.answered, *(cite for aside in self.asides for cite in aside.cites))

    @property
    def answered(self) -> tuple[str, ...]:
        """The citations of claims and contradictions."""
        quoted = [quote.cite for each in self.contradictions for quote in each.quotes]
        return (*quoted, *(cite for claim in self.claims for cite in claim.cites))


def load_catalogue(folder: Path) -> tuple[Claim, ...]:
    """Every claim of a folder of TOML files; what else they hold is checked as well.

    :raises CatalogueError: naming file, claim and field of the first broken entry
    """
    return load(folder).claims


def load(folder: Path) -> Catalogue:
    """All that the TOML files of a folder say.

    :raises CatalogueError: naming file, entry and field of the first broken entry
    """
    entries = [(path, entry) for path in _files(folder) for entry in _load_file(path)]
    _check_ids(entries)
    claims = tuple(_claim(path, entry) for path, entry in entries if isinstance(entry, ClaimEntry))
    asides = tuple(Aside(entry.cites, entry.why) for _, entry in entries if isinstance(entry, AsideEntry))
    contradictions = tuple(_contradiction(entry) for _, entry in entries if isinstance(entry, ContradictionEntry))
    return Catalogue(claims, asides, contradictions)


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
        if isinstance(entry, (ClaimEntry, ContradictionEntry)):
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


def _claim(path: Path, entry: ClaimEntry) -> Claim:
    given = {name: value for name, value in entry.model_dump().items() if value is not None}
    if entry.problem is not None:
        given["problem"] = Problem(**entry.problem.model_dump())
    if entry.figure is not None:
        given |= {"probe": "", "figure": Figure(**entry.figure.model_dump()), "seeds": tuple(range(entry.figure.runs))}
    return Claim(document=path.stem, **given)


def _contradiction(entry: ContradictionEntry) -> Contradiction:
    quotes = tuple(Quotation(quote.cite, quote.text) for quote in entry.quotes)
    return Contradiction(entry.id, entry.statement, quotes, entry.measured, entry.settled_by)


def _load_file(path: Path) -> Sequence[BaseModel]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CatalogueError(path.name, "", "", f"cannot be read: {error}") from error
    if content.get("document") != path.stem:
        raise CatalogueError(path.name, "", "document", f"must be {path.stem!r}, the name of the file")
    if unknown := sorted(set(content) - {"document", *TABLES}):
        raise CatalogueError(path.name, "", unknown[0], "stands outside every [[claim]]")
    tables = {name: content[name] for name in TABLES if name in content}
    for name, entries in tables.items():
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise CatalogueError(path.name, "", name, f"must be one or more [[{name}]] tables")
    if not any(tables.values()):
        raise CatalogueError(path.name, "", "claim", "must be one or more [[claim]] tables")
    return [
        _load_entry(path, kind, number, entry)
        for kind, entries in tables.items()
        for number, entry in enumerate(entries, start=1)
    ]


def _load_entry(path: Path, kind: str, number: int, table: Mapping[str, Any]) -> BaseModel:
    try:
        return TABLES[kind].model_validate(table)
    except ValidationError as error:
        name = str(table.get("id", f"entry {number}" if kind == "claim" else f"{kind} {number}"))
        field, reason = _explain(cast("dict[str, Any]", error.errors(include_url=False)[0]), TABLES[kind])
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise CatalogueError(path.name, name, field, reason + more) from error


def _explain(problem: Mapping[str, Any], kind: type[BaseModel]) -> tuple[str, str]:
    field = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "value_error":
        said = str(problem["ctx"]["error"])
        return (field, said) if field else (said.partition(": ")[0], said.partition(": ")[2])
    if problem["type"] == "extra_forbidden":
        close = get_close_matches(field, kind.model_fields, n=1)
        return field, "no such field" + (f"; did you mean {close[0]!r}?" if close else "")
    return field, f"{problem['msg']}, got {problem['input']!r}" if problem["type"] != "missing" else "is missing"
