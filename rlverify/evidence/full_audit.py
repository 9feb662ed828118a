"""``full_audit.json``: when, and at which revision, all claims were last measured together, figures included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from rlverify.evidence.files import canonical_json
from rlverify.evidence.reading import text_of

NAME: Final = "full_audit.json"


@dataclass(frozen=True)
class FullAudit:
    """The last time that all claims were measured together.

    :param code: digest of all code, as `CurrentCode` gives it
    :param date: the day in UTC, as in ``2026-11-25``
    :param libraries: versions of the libraries of the settings, by name
    :param machine: as `rlverify.project.code.machine` gives it
    :param revision: of the code, as Git describes it; empty without Git
    :param seconds: that a run of each experiment took, by its name
    """

    code: str = ""
    date: str = ""
    libraries: Mapping[str, str] = field(default_factory=dict)
    machine: str = ""
    revision: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)


_FILE: Final = TypeAdapter(FullAudit)


def to_json(audit: FullAudit) -> str:
    """The text of the file."""
    return canonical_json(asdict(audit))


def load_full_audit(reports: Path) -> FullAudit:
    """What the file in a folder of reports says; nothing where there is none, or it is broken."""
    path = reports / NAME
    return parsed(text_of(path)) if path.is_file() else FullAudit()


def parsed(text: str) -> FullAudit:
    """What a text of the file says; nothing if it is broken."""
    try:
        return _FILE.validate_json(text)
    except ValidationError:
        return FullAudit()
