"""The committed points of the plots: canonical JSON with a seal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from rlverify.evidence.reading import text_of, why_unreadable
from rlverify.evidence.seals import check_seal, sealed
from rlverify.records.errors import EvidenceError
from rlverify.records.plot_points import Line, Plot

SCHEMA_VERSION = 2
FOLDER = "plots"


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    label: str
    values: tuple[float | None, ...]


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[2]
    digest: str
    title: str
    x_label: str
    y_label: str
    positions: tuple[float, ...]
    lines: tuple[_Line, ...]
    note: str
    log_x: bool
    log_y: bool


def to_json(plot: Plot) -> str:
    """The points as they are committed."""
    return sealed({"schema_version": SCHEMA_VERSION, **asdict(plot)})


def from_json(text: str, path: Path) -> Plot:
    """Read what `to_json` wrote.

    :param path: where it stands, for the error
    :raises EvidenceError: if a field is missing, unknown or mistyped, the file was edited, or nothing can be drawn
    """
    try:
        content: dict[str, Any] = _File.model_validate_json(text).model_dump()
    except ValidationError as error:
        raise EvidenceError(path, why_unreadable(error, text, "measure it again")) from error
    check_seal(text, path, "run `rlverify audit --update`")
    del content["schema_version"], content["digest"]
    try:
        return Plot(**{**content, "lines": tuple(Line(**line) for line in content["lines"])})
    except ValueError as error:
        raise EvidenceError(path, f"{error}; measure it again") from error


def load_plots(reports: Path) -> Mapping[str, Plot]:
    """All committed plots by name; a folder that does not exist holds none.

    :param reports: the folder of reports
    :raises EvidenceError: on the first broken file
    """
    return {path.stem: from_json(text_of(path), path) for path in sorted((reports / FOLDER).glob("*.json"))}
