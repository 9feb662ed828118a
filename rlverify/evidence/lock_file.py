"""The lock file ``digests.json``: what each claim and plot was measured of.

All digests are in this one file, so that a change which moves no measured value changes nothing else. A digest is
written once, with the code. A claim that keeps older evidence lists the parts that have changed since.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rlverify.evidence.files import canonical_json
from rlverify.project.current_code import FILE, LIBRARY, VERDICTS, CurrentCode
from rlverify.records.code_records import CodeRecord, Executed
from rlverify.records.errors import EvidenceError

NAME: Final = "digests.json"
SCHEMA_VERSION: Final = 1
IMPORT: Final = "(import)"
"""The part of a module that runs when it is imported."""

Digests = dict[str, str]


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    settings: str
    executed: dict[str, str]
    files: tuple[str, ...] = ()
    outdated: Digests = Field(default_factory=dict)


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Annotated[int, Literal[1]]
    code: dict[str, Digests]
    files: Digests
    libraries: Digests
    claims: dict[str, _Entry]
    plots: dict[str, _Entry]


@dataclass(frozen=True)
class Lock:
    """What each claim, by id, and each plot, by name, was measured of."""

    claims: Mapping[str, CodeRecord] = field(default_factory=dict)
    plots: Mapping[str, CodeRecord] = field(default_factory=dict)


def lock_json(lock: Lock, code: CurrentCode) -> str:
    """The lock file of some records.

    :param code: whose digests are written with the code; a digest that differs in a record is written with its claim
    """
    records = (*lock.claims.values(), *lock.plots.values())
    names = sorted({name for record in records for name, _ in record.parts})
    table = {name: code.digest(name) for name in names if code.digest(name)}
    modules: dict[str, Digests] = defaultdict(dict)
    for name, value in table.items():
        if not name.startswith((FILE, LIBRARY)) and name != VERDICTS:
            module, _, function = name.partition(":")
            modules[module][function or IMPORT] = value
    return canonical_json(
        {
            "schema_version": SCHEMA_VERSION,
            "code": modules,
            "files": {name.removeprefix(FILE): value for name, value in table.items() if name.startswith(FILE)},
            "libraries": {
                name.removeprefix(LIBRARY): value
                for name, value in table.items()
                if name.startswith(LIBRARY) or name == VERDICTS
            },
            "claims": {name: _entry(record, table) for name, record in lock.claims.items()},
            "plots": {name: _entry(record, table) for name, record in lock.plots.items()},
        }
    )


def _entry(record: CodeRecord, table: Digests) -> dict[str, Any]:
    executed: dict[str, list[str]] = {root: [] for root in record.roots}
    for name in record.executed.functions:
        module, _, function = name.partition(":")
        executed.setdefault(module, []).append(function)
    entry: dict[str, Any] = {
        "settings": record.settings,
        "executed": {module: " ".join(found) for module, found in executed.items()},
    }
    outdated = {name: value for name, value in record.parts if table.get(name, "") != value}
    return entry | {key: value for key, value in (("files", record.executed.files), ("outdated", outdated)) if value}


def load_lock(path: Path, code: CurrentCode) -> Lock:
    """The lock file of a folder of reports; an empty one where there is none.

    :raises EvidenceError: if it is broken
    """
    try:
        return lock_of(path.read_text(encoding="utf-8"), path, code)
    except FileNotFoundError:
        return Lock()
    except (OSError, UnicodeDecodeError) as error:
        raise EvidenceError(path, f"cannot be read: {error}") from error


def lock_of(text: str, path: Path, code: CurrentCode) -> Lock:
    """Read what `lock_json` wrote.

    :param path: where it stands, for the error
    :param code: which names the modules that are imported
    :raises EvidenceError: if it is broken
    """
    try:
        content = _File.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        reason = f"{place + ': ' if place else ''}{first['msg']}; run `rlverify audit --level full --update`"
        raise EvidenceError(path, reason) from error
    table = {f"{module}:{name}": value for module, found in content.code.items() for name, value in found.items()}
    table = {name.removesuffix(f":{IMPORT}"): value for name, value in table.items()}
    table |= {FILE + name: value for name, value in content.files.items()}
    table |= {name if name == VERDICTS else LIBRARY + name: value for name, value in content.libraries.items()}
    claims = {name: _record(entry, table, code) for name, entry in content.claims.items()}
    return Lock(claims, {name: _record(entry, table, code) for name, entry in content.plots.items()})


def _record(entry: _Entry, table: Digests, code: CurrentCode) -> CodeRecord:
    """The record of an entry.

    The modules that were imported are those that are imported now: if one more or one fewer is, then the code of a
    module that was imported before has changed as well.
    """
    functions = tuple(sorted(f"{module}:{name}" for module, found in entry.executed.items() for name in found.split()))
    executed = Executed(functions, entry.files)
    names: Iterable[str] = {*code.names_of(executed, code.closure(entry.executed)), *entry.outdated}
    digests = {name: entry.outdated.get(name, table.get(name, "")) for name in names}
    roots = tuple(sorted(entry.executed))
    return CodeRecord(entry.settings, roots, executed, tuple(sorted(digests.items())))
