"""Selects what a change can affect: the claims of which a run executed something that has changed.

The lock file of the base commit records what every claim executed, with digests. A run can come to another result only
if something that it executed has changed. This is the idea of Ekstazi, there by file and here by function (Gligoric,
Eloussi and Marinov, "Practical regression test selection with dynamic file dependencies", ISSTA 2015). What the record
does not cover selects everything: the engine itself, the settings, and a base without a lock file.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

import rlverify
from rlverify.evidence.evidence_files import from_json
from rlverify.evidence.lock_file import NAME as LOCK_FILE
from rlverify.evidence.lock_file import Lock, load_lock, lock_of
from rlverify.evidence.plot_files import FOLDER
from rlverify.evidence.staleness import changed_since
from rlverify.project.content import Project
from rlverify.project.current_code import FILE, LIBRARY, VERDICTS, CurrentCode
from rlverify.project.fingerprint import module_name, parts_or_whole
from rlverify.project.settings import FILE as SETTINGS_FILE
from rlverify.project.settings import ReportPaths
from rlverify.records.claims import Claim
from rlverify.records.code_records import CodeRecord
from rlverify.records.errors import EvidenceError, HarnessError
from rlverify.records.measured import Evidence

MAIN_BRANCHES: Final = ("origin/HEAD", "origin/main", "origin/master", "main", "master")
"""With the first that exists, the merge base is looked for."""


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
    """

    claim_ids: frozenset[str]
    in_diff: frozenset[str]
    plots: frozenset[str]
    reason: str
    changed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    relocked: frozenset[str] = frozenset()
    before: Mapping[str, Evidence] = field(default_factory=dict)


class UnknownChangesError(HarnessError):
    """Git cannot tell what has changed."""


@dataclass(frozen=True)
class Base:
    """The commit that the working tree is compared with.

    :param top: the folder of the checkout
    """

    top: Path
    commit: str

    @cached_property
    def changed(self) -> frozenset[Path]:
        """The files that differ from it, deleted and untracked ones included."""
        difference = _git(self.top, "diff", "--name-only", "--no-renames", "-z", self.commit, "--")
        untracked = _git(self.top, "ls-files", "--others", "--exclude-standard", "-z")
        return frozenset((self.top / path).resolve() for path in {*difference, *untracked})

    def text(self, path: Path) -> str | None:
        """A file as it is in that commit; None where it is not there."""
        if not path.resolve().is_relative_to(self.top):
            return None
        name = path.resolve().relative_to(self.top).as_posix()
        if not _git(self.top, "ls-tree", self.commit, "--", name):
            return None
        return "\0".join(_git(self.top, "show", f"{self.commit}:{name}"))


def find_base(project: Project, asked: str | None) -> Base:
    """The commit to compare with.

    :param asked: a Git revision; by default, and where it is empty, the merge base of HEAD and the main branch, or, on
        the main branch, the commit before HEAD
    :raises UnknownChangesError: if there is none
    """
    try:
        top = Path(_git(project.root, "rev-parse", "--show-toplevel")[0].removesuffix("\n")).resolve()
        return Base(top, _asked_commit(top, asked) if asked else _default_base(top))
    except (OSError, subprocess.CalledProcessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[0]
        raise UnknownChangesError(
            f"Git does not tell what changed since {asked or 'the main branch'}: {said}"
        ) from error


def _default_base(top: Path) -> str:
    head = _commit(top, "HEAD")
    target = os.environ.get("GITHUB_BASE_REF")
    for branch in (*[f"origin/{target}"] * bool(target), *MAIN_BRANCHES):
        try:
            found = _git(top, "merge-base", head, _commit(top, branch))[0].strip()
        except subprocess.CalledProcessError:
            continue
        if found != head:
            return found
        break
    return _commit(top, "HEAD~1")


def _asked_commit(top: Path, revision: str) -> str:
    try:
        return _commit(top, revision)
    except subprocess.CalledProcessError as error:
        raise UnknownChangesError(f"Git knows no commit {revision!r}; correct --base, or fetch the history") from error


def _commit(top: Path, revision: str) -> str:
    return _git(top, "rev-parse", "--verify", f"{revision}^{{commit}}")[0].strip()


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
    edited = frozenset(_edited_parts(base, code))
    changed = {
        claim.id: tuple(
            dict.fromkeys(
                (
                    *changed_since(lock.claims.get(claim.id), project.settings_digest(claim), code),
                    *_among(edited, lock.claims.get(claim.id)),
                )
            )
        )
        for claim in project.claims
    }
    relocked = _relocked(base, paths, lock, code)
    found = (claim.id for claim in project.claims if changed[claim.id] or _is_in_diff(project, paths, base, claim))
    in_diff = frozenset(found) | {claim.id for claim in project.claims if claim.id in relocked}
    plots = frozenset(
        name
        for name in project.plots
        if name in relocked or _among(edited, lock.plots.get(name)) or _is_plot_affected(paths, base, lock, code, name)
    )
    before = _evidence_before(project, paths, base)
    for path in sorted(base.changed):
        if _is_everywhere(project, base, path):
            reason = f"{_shown(path.relative_to(base.top))} changed since {base.commit[:10]}"
            return Selection(everything, in_diff, plots, reason, changed, relocked, before)
    words = "all of them executed something that" if in_diff == everything else "those of which a run executed what"
    reason = f"{words} changed since {base.commit[:10]}"
    return Selection(in_diff, in_diff, plots, reason, changed, relocked, before)


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
                was, now = parts_or_whole(_encoded(base.text(path))), code.parts(module)
                differ = (name for name in was.keys() | now.keys() if was.get(name) != now.get(name))
                yield from (f"{module}:{name}" if name else module for name in differ)


def _encoded(text: str | None) -> bytes:
    return (text or "").encode(errors="surrogateescape")


def _among(names: frozenset[str], record: CodeRecord | None) -> list[str]:
    """The parts of a record that are among some names."""
    return [name for name, _ in record.parts if name in names] if record is not None else []


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
    if was is None or (was.roots, was.executed) != (record.roots, record.executed):
        return True
    return any(not name.startswith(LIBRARY) and name != VERDICTS for name in code.changed(was))


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


def _is_plot_affected(paths: ReportPaths, base: Base, lock: Lock, code: CurrentCode, name: str) -> bool:
    record = lock.plots.get(name)
    files: Iterable[Path] = ((paths.reports / FOLDER / f"{name}{suffix}").resolve() for suffix in (".json", ".svg"))
    return record is None or bool(code.changed(record)) or bool(base.changed & set(files))


def _git(folder: Path, *arguments: str) -> list[str]:
    """What a command says, in parts; without the variables by which another repository is named."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        check=True,
        capture_output=True,
        env=environment,
        encoding="utf-8",
        errors="surrogateescape",
    )
    return [part for part in done.stdout.split("\0") if part]


def _shown(path: Path) -> str:
    return str(path).encode(errors="surrogateescape").decode(errors="backslashreplace")
