"""The lock file ``digests.json``: what each claim and plot was measured of.

All digests are in this one file, so that a change which moves no measured value changes nothing else. A digest is
written once, with the code, and functions that the same claims executed once for all of them. A claim that keeps older
evidence lists the parts that have changed since, or the seed of the run that was repeated since.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rlverify.evidence.files import canonical_json
from rlverify.evidence.reading import text_of, why_unreadable
from rlverify.project.current_code import FILE, LIBRARY, VERDICTS, CurrentCode
from rlverify.records.code_records import CodeRecord, Executed
from rlverify.records.errors import EvidenceError

NAME: Final = "digests.json"
SCHEMA_VERSION: Final = 1
IMPORT: Final = "(import)"
"""The part of a module that runs when it is imported."""

Digests = dict[str, str]


class _Group(BaseModel):
    """Functions of a module that some claims and plots executed, all separated by spaces."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    functions: str
    claims: str = ""
    plots: str = ""


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    settings: str = ""
    files: tuple[str, ...] = ()
    outdated: Digests = Field(default_factory=dict)
    repeated: int | None = None


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Annotated[int, Literal[1]]
    code: dict[str, Digests]
    files: Digests
    libraries: Digests
    executed: dict[str, tuple[_Group, ...]]
    claims: dict[str, _Entry]
    plots: dict[str, _Entry]
    full_audit: str = ""


@dataclass(frozen=True)
class Lock:
    """What each claim, by id, and each plot, by name, was measured of.

    :param full_audit: the day, in UTC, on which all claims were measured together for the first time with this code and
        these settings, as in ``2026-11-25``
    """

    claims: Mapping[str, CodeRecord] = field(default_factory=dict)
    plots: Mapping[str, CodeRecord] = field(default_factory=dict)
    full_audit: str = ""


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
            "executed": _groups(lock),
            "claims": {name: _entry(record, table) for name, record in lock.claims.items()},
            "plots": {name: _entry(record, table) for name, record in lock.plots.items()},
            **({"full_audit": lock.full_audit} if lock.full_audit else {}),
        }
    )


def _entry(record: CodeRecord, table: Digests) -> dict[str, Any]:
    outdated = {name: value for name, value in record.parts if table.get(name, "") != value}
    optional = (("settings", record.settings), ("files", record.executed.files), ("outdated", outdated))
    entry: dict[str, Any] = {key: value for key, value in optional if value}
    return entry if record.repeated is None else {**entry, "repeated": record.repeated}


def _groups(lock: Lock) -> dict[str, list[dict[str, str]]]:
    """For each module the functions that the same claims and plots executed."""
    members: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for kind, records in (("claims", lock.claims), ("plots", lock.plots)):
        for name in sorted(records):
            for module, found in _by_module(records[name]).items():
                members[module, " ".join(found)][kind].append(name)
    groups: dict[str, list[dict[str, str]]] = defaultdict(list)
    for module, functions in sorted(members):
        named = {kind: " ".join(names) for kind, names in members[module, functions].items()}
        groups[module].append({"functions": functions, **named})
    return groups


def _by_module(record: CodeRecord) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {root: [] for root in record.roots}
    for name in record.executed.functions:
        module, _, function = name.partition(":")
        found[module].append(function)
    return found


def load_lock(path: Path, code: CurrentCode) -> Lock:
    """The lock file of a folder of reports; an empty one where there is none.

    :raises EvidenceError: if it is broken
    """
    return lock_of(text_of(path), path, code) if path.exists() else Lock()


def lock_of(text: str, path: Path, code: CurrentCode) -> Lock:
    """Read what `lock_json` wrote.

    :param path: where it stands, for the error
    :param code: which names the modules that are imported
    :raises EvidenceError: if it is broken
    """
    try:
        content = _File.model_validate_json(text)
    except ValidationError as error:
        raise EvidenceError(path, why_unreadable(error, text, "run `rlverify audit --level full --update`")) from error
    table = {f"{module}:{name}": value for module, found in content.code.items() for name, value in found.items()}
    table = {name.removesuffix(f":{IMPORT}"): value for name, value in table.items()}
    table |= {FILE + name: value for name, value in content.files.items()}
    table |= {name if name == VERDICTS else LIBRARY + name: value for name, value in content.libraries.items()}
    executed = {kind: _executed(content, kind) for kind in ("claims", "plots")}
    return Lock(
        {name: _record(each, executed["claims"].get(name, {}), table, code) for name, each in content.claims.items()},
        {name: _record(each, executed["plots"].get(name, {}), table, code) for name, each in content.plots.items()},
        content.full_audit,
    )


def measured_with(text: str) -> tuple[str, Mapping[str, str], int]:
    """What a lock file says of all measurements together: nothing if it is broken.

    :returns: the day of the last full audit, the versions of the libraries, and of how many claims only one run was
        made since
    """
    try:
        content = _File.model_validate_json(text)
    except ValidationError:
        return "", {}, 0
    libraries = {name: version for name, version in content.libraries.items() if name != VERDICTS}
    return content.full_audit, libraries, sum(each.repeated is not None for each in content.claims.values())


def _executed(content: _File, kind: str) -> dict[str, dict[str, str]]:
    """The functions of each module, by claim or plot and module."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for module, groups in content.executed.items():
        for group in groups:
            for name in getattr(group, kind).split():
                found[name][module] = group.functions
    return found


def _record(entry: _Entry, modules: Mapping[str, str], table: Digests, code: CurrentCode) -> CodeRecord:
    """The record of an entry.

    The modules that were imported are those that are imported now: if one more or one fewer is, then the code of a
    module that was imported before has changed as well.
    """
    functions = tuple(sorted(f"{module}:{name}" for module, found in modules.items() for name in found.split()))
    executed = Executed(functions, entry.files)
    names: Iterable[str] = {*code.names_of(executed, code.closure(modules)), *entry.outdated}
    digests = {name: entry.outdated.get(name, table.get(name, "")) for name in names}
    return CodeRecord(entry.settings, tuple(sorted(modules)), executed, tuple(sorted(digests.items())), entry.repeated)
