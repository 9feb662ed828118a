"""Loads the catalogue: one TOML file per source document, each claim checked before any of them is used.

A file reads ``document = "<its own name without .toml>"``, then one ``[[claim]]`` table per claim with the fields of
`verification.model.Claim` (all but ``document``).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from verification.errors import CatalogueError
from verification.model import Claim, FixGrade, Kind, Verdict

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Identifier = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9]*(-[A-Z0-9]+)*$")]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
Seed = Annotated[int, Field(strict=True, ge=0, lt=2**32)]

EXPECTED_WITH_FAULT = (Verdict.CONFIRMED, Verdict.NOT_REPRODUCED)
EXPECTED_WITHOUT_FAULT = (Verdict.CONFIRMED, Verdict.REFUTED)


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
    probe: Name
    modules: Annotated[tuple[Text, ...], Field(min_length=1)]
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)]
    fault: Name | None = None
    shows: tuple[Text, ...] = ()
    against_document: Annotated[bool, Field(strict=True)] = False
    documented_fix: Name | None = None
    fix_statement: Text | None = None
    expected_fix_grade: FixGrade | None = None
    root_cause: Text | None = None
    severity: Text | None = None
    killed_by: tuple[Text, ...] = ()

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
    def _lists_fit(self) -> ClaimEntry:
        for field in ("killed_by", "shows"):
            if getattr(self, field) and (self.fault is None or self.expected_verdict is not Verdict.CONFIRMED):
                raise ValueError(f"{field}: nothing is expected to notice this; leave it out, or expect CONFIRMED")
        for field in ("seeds", "shows"):
            if len(set(getattr(self, field))) != len(getattr(self, field)):
                raise ValueError(f"{field}: each of them once")
        return self


def load_catalogue(folder: Path) -> tuple[Claim, ...]:
    """Every claim of a folder of TOML files, in the order of the file names and of the entries.

    :raises CatalogueError: naming file, claim and field of the first broken entry
    """
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix == ".toml")
    except OSError as error:
        raise CatalogueError(str(folder), "", "", f"cannot be read: {error.strerror}") from error
    if not files:
        raise CatalogueError(str(folder), "", "", "holds no .toml file, so there is nothing to verify")
    claims: dict[str, Claim] = {}
    for path in files:
        for claim in _load_file(path):
            if claim.id in claims:
                raise CatalogueError(path.name, claim.id, "id", f"already used in {claims[claim.id].document}.toml")
            claims[claim.id] = claim
    return tuple(claims.values())


def _load_file(path: Path) -> Sequence[Claim]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CatalogueError(path.name, "", "", f"cannot be read: {error}") from error
    if content.get("document") != path.stem:
        raise CatalogueError(path.name, "", "document", f"must be {path.stem!r}, the name of the file")
    if set(content) - {"document", "claim"}:
        raise CatalogueError(
            path.name, "", sorted(set(content) - {"document", "claim"})[0], "stands outside every [[claim]]"
        )
    entries = content.get("claim")
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise CatalogueError(path.name, "", "claim", "must be one or more [[claim]] tables")
    return [_load_entry(path, number, entry) for number, entry in enumerate(entries, start=1)]


def _load_entry(path: Path, number: int, table: Mapping[str, Any]) -> Claim:
    try:
        entry = ClaimEntry.model_validate(table)
    except ValidationError as error:
        claim = str(table.get("id", f"entry {number}"))
        field, reason = _explain(cast("dict[str, Any]", error.errors(include_url=False)[0]))
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise CatalogueError(path.name, claim, field, reason + more) from error
    given = {name: value for name, value in entry.model_dump().items() if value is not None}
    return Claim(document=path.stem, **given)


def _explain(problem: Mapping[str, Any]) -> tuple[str, str]:
    field = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "value_error":
        field, _, reason = str(problem["ctx"]["error"]).partition(": ")
        return field, reason
    if problem["type"] == "extra_forbidden":
        close = get_close_matches(field, ClaimEntry.model_fields, n=1)
        return field, "no such field" + (f"; did you mean {close[0]!r}?" if close else "")
    return field, f"{problem['msg']}, got {problem['input']!r}" if problem["type"] != "missing" else "is missing"
