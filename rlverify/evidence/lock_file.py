"""The lock file ``digests.json``: what each claim and plot was measured of.

All digests are in this one file, so that a change which moves no measured value changes nothing else. A digest is
written once, with the code, and functions that the same claims executed once for all of them. A claim that keeps older
evidence lists the parts that have changed since, or the seed of the run that was repeated since. What other runs may
execute since then stands apart from what runs executed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
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
Functions = dict[str, list[str]]
"""Functions of each module."""


class _Group(BaseModel):
    """Functions of a module that some claims and plots executed or may execute, all separated by spaces."""

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
    mentioned: dict[str, tuple[_Group, ...]] = Field(default_factory=dict)
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
            "executed": _groups(lock, _executed_by_module),
            **({"mentioned": mentioned} if (mentioned := _groups(lock, _mentioned_by_module)) else {}),
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


def _groups(lock: Lock, by_module: Callable[[CodeRecord], Functions]) -> dict[str, list[dict[str, str]]]:
    """For each module the functions that the same claims and plots have."""
    members: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for kind, records in (("claims", lock.claims), ("plots", lock.plots)):
        for name in sorted(records):
            for module, found in by_module(records[name]).items():
                members[module, " ".join(found)][kind].append(name)
    groups: dict[str, list[dict[str, str]]] = defaultdict(list)
    for module, functions in sorted(members):
        named = {kind: " ".join(names) for kind, names in members[module, functions].items()}
        groups[module].append({"functions": functions, **named})
    return groups


def _executed_by_module(record: CodeRecord) -> Functions:
    return {**{root: [] for root in record.roots}, **_by_module(record.executed.functions)}


def _mentioned_by_module(record: CodeRecord) -> Functions:
    return _by_module(record.mentioned)


def _by_module(names: Iterable[str]) -> Functions:
    found: Functions = defaultdict(list)
    for name in names:
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
    executed, mentioned = _by_member(content.executed), _by_member(content.mentioned)

    def record(entry: _Entry, member: tuple[str, str]) -> CodeRecord:
        return _record(entry, executed.get(member, {}), mentioned.get(member, {}), table, code)

    return Lock(
        {name: record(entry, ("claims", name)) for name, entry in content.claims.items()},
        {name: record(entry, ("plots", name)) for name, entry in content.plots.items()},
        content.full_audit,
    )


def measured_with(text: str) -> tuple[str, Mapping[str, str], int]:
    """What a lock file says of all measurements together: nothing if it is broken.

    :returns: the day of the last full audit, the versions of the libraries, and the number of claims of which only one
        run was made with this code
    """
    try:
        content = _File.model_validate_json(text)
    except ValidationError:
        return "", {}, 0
    libraries = {name: version for name, version in content.libraries.items() if name != VERDICTS}
    repeated = [each for each in content.claims.values() if each.repeated is not None and not each.outdated]
    return content.full_audit, libraries, len(repeated)


def _by_member(groups: Mapping[str, Iterable[_Group]]) -> dict[tuple[str, str], dict[str, list[str]]]:
    """The functions of each module, by what has them: ``claims`` or ``plots``, and the name."""
    found: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(dict)
    for module, ones in groups.items():
        for group in ones:
            for kind, names in (("claims", group.claims), ("plots", group.plots)):
                for name in names.split():
                    found[kind, name][module] = group.functions.split()
    return found


def _record(entry: _Entry, executed: Functions, mentioned: Functions, table: Digests, code: CurrentCode) -> CodeRecord:
    """The record of an entry.

    The modules that were imported are those that are imported now: if one more or one fewer is, then the code of a
    module that was imported before has changed as well.
    """
    seen, may_be_executed = Executed(_full_names(executed), entry.files), _full_names(mentioned)
    names = {*code.names_of(seen, code.closure(executed)), *may_be_executed, *entry.outdated}
    digests = {name: entry.outdated.get(name, table.get(name, "")) for name in names}
    parts = tuple(sorted(digests.items()))
    return CodeRecord(entry.settings, tuple(sorted(executed)), seen, parts, may_be_executed, entry.repeated)


def _full_names(functions: Functions) -> tuple[str, ...]:
    return tuple(sorted(f"{module}:{name}" for module, found in functions.items() for name in found))
