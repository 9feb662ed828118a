"""Selects what a change can affect: the claims of which a run executed something that has changed.

The lock file of the base commit records what every claim executed, with digests. A run can come to another result only
if something that it executed has changed. This is the idea of Ekstazi, there by file and here by function (Gligoric,
Eloussi and Marinov, "Practical regression test selection with dynamic file dependencies", ISSTA 2015). What the record
does not cover selects everything: the engine itself, the settings, and a base without a lock file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import rlverify
from rlverify.evidence.evidence_files import from_json
from rlverify.evidence.lock_file import NAME as LOCK_FILE
from rlverify.evidence.lock_file import Lock, load_lock, lock_of
from rlverify.evidence.plot_files import FOLDER
from rlverify.evidence.staleness import changed_since
from rlverify.gating.git_base import Base, UnknownChangesError, find_base
from rlverify.project.content import Project
from rlverify.project.current_code import FILE, LIBRARY, VERDICTS, CurrentCode
from rlverify.project.fingerprint import module_name, parts_or_whole
from rlverify.project.settings import FILE as SETTINGS_FILE
from rlverify.project.settings import ReportPaths
from rlverify.records.claims import Claim
from rlverify.records.code_records import CodeRecord
from rlverify.records.errors import EvidenceError
from rlverify.records.measured import Evidence


@dataclass(frozen=True)
class Selection:
    """What to measure.

    :param claim_ids: ids of the claims
    :param in_diff: ids of those whose code, catalogue file or evidence differs, or may differ, from the base
    :param plots: names of the plots of which something does
    :param reason: why these, as the end of a sentence
    :param changed: what has changed of that which each claim executed, by its id, as in `CodeRecord.parts`
    :param relocked: ids of claims, and names of plots, whose entry in the lock file was made since the base
    :param before: the evidence of figures at the base, by claim id, where it differs
    :param base: the commit that the working tree was compared with; None if there is none
    """

    claim_ids: frozenset[str]
    in_diff: frozenset[str]
    plots: frozenset[str]
    reason: str
    changed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    relocked: frozenset[str] = frozenset()
    before: Mapping[str, Evidence] = field(default_factory=dict)
    base: Base | None = None


NOTHING_SELECTED: Final = Selection(frozenset(), frozenset(), frozenset(), "")


def select(project: Project, paths: ReportPaths, asked: str | None) -> Selection:
    """What the difference between a commit and the working tree can affect.

    :param asked: as in `find_base`
    """
    everything = frozenset(claim.id for claim in project.claims)
    code = CurrentCode(project)
    try:
        base = find_base(project, asked)
        lock = _lock_of(base, paths, code)
    except UnknownChangesError as error:
        return Selection(everything, everything, frozenset(project.plots), str(error))
    edited, relocked = frozenset(_edited_parts(base, code)), _relocked(base, paths, lock, code)
    changed = {
        claim.id: _changed(lock.claims.get(claim.id), project.settings_digest(claim), code, edited)
        for claim in project.claims
    }
    in_diff = frozenset(
        claim.id
        for claim in project.claims
        if changed[claim.id] or claim.id in relocked or _is_in_diff(project, paths, base, claim)
    )
    plots = frozenset(
        name
        for name in project.plots
        if name in relocked or _changed(lock.plots.get(name), "", code, edited) or _is_plot_in_diff(paths, base, name)
    )
    reason, claim_ids = "those of which a run executed what changed", in_diff
    if everywhere := [path for path in sorted(base.changed) if _is_everywhere(project, base, path)]:
        reason, claim_ids = f"{_shown(everywhere[0].relative_to(base.top))} changed", everything
    elif in_diff == everything:
        reason = "all of them executed something that changed"
    before = _evidence_before(project, paths, base)
    return Selection(claim_ids, in_diff, plots, f"{reason} since {base.commit[:10]}", changed, relocked, before, base)


def _changed(record: CodeRecord | None, settings: str, code: CurrentCode, edited: frozenset[str]) -> tuple[str, ...]:
    """As `changed_since`, with those parts that the base's lock file may hide."""
    found = list(changed_since(record, settings, code))
    found += [name for name, _ in record.parts if name in edited] if record is not None else []
    return tuple(dict.fromkeys(found))


def _lock_of(base: Base, paths: ReportPaths, code: CurrentCode) -> Lock:
    path = paths.reports / LOCK_FILE
    text = base.text(path)
    if text is None:
        raise UnknownChangesError(f"{base.commit[:10]} has no {LOCK_FILE}")
    try:
        return lock_of(text, path, code)
    except EvidenceError as error:
        raise UnknownChangesError(f"the {LOCK_FILE} of {base.commit[:10]} is broken") from error


def _edited_parts(base: Base, code: CurrentCode) -> Iterator[str]:
    """Names of the parts, as in `CodeRecord.parts`, of which the source differs from the base.

    The lock file has no say in it, because that may have been edited.
    """
    project = code.project
    places = {package: place.resolve() for package, place in project.code_places.items()}
    for path in base.changed:
        if path.is_relative_to(project.root.resolve()):
            yield FILE + path.relative_to(project.root.resolve()).as_posix()
        for package, place in places.items():
            if path.suffix == ".py" and path.is_relative_to(place):
                module = module_name(package, place, path)
                was, now = _parts_before(base, path), code.parts(module)
                differ = (name for name in was.keys() | now.keys() if was.get(name) != now.get(name))
                yield from (f"{module}:{name}" if name else module for name in differ)


def _parts_before(base: Base, path: Path) -> Mapping[str, str]:
    """As `parts_or_whole`, of a file at the base; no parts where it is not there."""
    text = base.text(path)
    return parts_or_whole(text.encode(errors="surrogateescape")) if text is not None else {}


def _relocked(base: Base, paths: ReportPaths, was: Lock, code: CurrentCode) -> frozenset[str]:
    """Claims and plots whose entry in the lock file is of the code of today and was made since the base."""
    path = paths.reports / LOCK_FILE
    if path.resolve() not in base.changed:
        return frozenset()
    now = load_lock(path, code)
    pairs = [(was.claims, now.claims), (was.plots, now.plots)]
    return frozenset(
        name
        for old, new in pairs
        for name, record in new.items()
        if not code.changed(record) and _is_made_since(old.get(name), record, code)
    )


def _is_made_since(was: CodeRecord | None, record: CodeRecord, code: CurrentCode) -> bool:
    """Whether an entry lists something else than an older one, or code of that has changed."""
    if was is None or _listed(was) != _listed(record):
        return True
    return any(not name.startswith(LIBRARY) and name != VERDICTS for name in code.changed(was))


def _listed(record: CodeRecord) -> tuple[object, ...]:
    return record.roots, record.executed, record.mentioned, record.repeated


def _evidence_before(project: Project, paths: ReportPaths, base: Base) -> dict[str, Evidence]:
    """The evidence of figures at the base, where it differs and can be read."""
    found = {}
    for claim in project.claims:
        path = paths.evidence / f"{claim.id}.json"
        if claim.figure is not None and path.resolve() in base.changed:
            with suppress(EvidenceError):
                found[claim.id] = from_json(base.text(path) or "", path)
    return found


def _is_everywhere(project: Project, base: Base, path: Path) -> bool:
    """Whether a changed file can affect every claim, whatever it executed."""
    if path == (project.root / SETTINGS_FILE).resolve():
        return True
    if path.suffix != ".py":
        return False
    engine = Path(rlverify.__file__).parent.resolve()
    module = path.parent if path.name == "__init__.py" else path
    at_top = module.parent in [place.resolve() for place in project.settings.pythonpath]
    is_new = at_top and base.text(path) is None  # it may be imported in place of another one of its name
    return path.is_relative_to(engine) or is_new


def _is_in_diff(project: Project, paths: ReportPaths, base: Base, claim: Claim) -> bool:
    """Whether the catalogue's file or the evidence of a claim differs from the base."""
    files = (paths.evidence / f"{claim.id}.json", project.catalogue_file(claim))
    return bool(base.changed & {path.resolve() for path in files})


def _is_plot_in_diff(paths: ReportPaths, base: Base, name: str) -> bool:
    """Whether the points or the drawing of a plot differ from the base."""
    files = {(paths.reports / FOLDER / f"{name}{suffix}").resolve() for suffix in (".json", ".svg")}
    return bool(base.changed & files)


def _shown(path: Path) -> str:
    return str(path).encode(errors="surrogateescape").decode(errors="backslashreplace")
