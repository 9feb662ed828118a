"""Selects the claims that a change in the working tree can affect: all of them, unless it is certain that it cannot.

Every probe is made of the code under test, so that a change there affects every claim. A change of one probe, fault,
experiment or catalogue file affects the claims that name it, and what no measurement reads affects none.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import rlverify
from rlverify.project.content import MEASURING, Project
from rlverify.project.fingerprint import module_digests
from rlverify.records.claims import Claim

SHARED: Final = (["__init__"], ["make"])
"""What every probe, fault or experiment is loaded or made by."""


@dataclass(frozen=True)
class Selection:
    """The claims to measure.

    :param claim_ids: their ids
    :param reason: why these, as the end of a sentence
    """

    claim_ids: frozenset[str]
    reason: str


def select(project: Project, revision: str) -> Selection:
    """The claims that the difference between ``revision`` and the working tree of a Git checkout can affect.

    :param revision: names one commit
    """
    everything = frozenset(claim.id for claim in project.claims)
    try:
        top = Path(_git(project.root, "rev-parse", "--show-toplevel")[0].removesuffix("\n"))
        unseen = _unseen(project, top)
        changed = () if unseen else changed_files(top, revision)
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        return Selection(everything, f"Git cannot tell what changed since {revision}: {said.strip().splitlines()[0]}")
    if unseen:
        return Selection(everything, f"Git does not see {_shown(unseen)}")
    selected: set[str] = set()
    for path in changed:
        affected = _affected(project, top / path)
        if affected is None:
            return Selection(everything, f"{_shown(path)} changed since {revision}")
        selected |= affected
    return Selection(frozenset(selected), f"the only ones that changes since {revision} can affect")


def changed_files(top: Path, revision: str) -> tuple[str, ...]:
    """Files of a checkout that differ from a commit, deleted and untracked ones included; sorted.

    :param top: the folder of the checkout, to which they are relative
    :raises subprocess.CalledProcessError: if the revision names no single commit
    """
    commit = _git(top, "rev-parse", "--verify", f"{revision}^{{commit}}")[0].strip()
    difference = _git(top, "diff", "--name-only", "--no-renames", "-z", commit, "--")
    untracked = _git(top, "ls-files", "--others", "--exclude-standard", "-z")
    return tuple(sorted({*difference, *untracked}))


def _unseen(project: Project, top: Path) -> str:
    """The first file of the code under test whose changes Git does not report, or nothing.

    That is a file outside the checkout, ignored, a link, or marked as unchanged.
    """
    engine = Path(rlverify.__file__).parent
    for place in (*code_of(project), *([engine] if engine.resolve().is_relative_to(top) else [])):
        if not place.resolve().is_relative_to(top):
            return str(place)
        folder, name = (place, ".") if place.is_dir() else (place.parent, place.name)
        ignored = _git(folder, "ls-files", "--others", "--ignored", "--exclude-standard", "-z", "--", name)
        tracked = _git(folder, "ls-files", "-v", "-s", "-z", "--", name)
        told = [line.partition("\t")[2] for line in tracked if not line.startswith("H 100")]
        for path in (*(each for each in ignored if "__pycache__" not in each), *told):
            return str(folder / path)
    return ""


def code_of(project: Project) -> list[Path]:
    """The folders, or files, of the content package and of the packages under test."""
    return sorted({project.folder, *map(_place_of, project.settings.under_test)})


def _place_of(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise LookupError(package)
    folders = spec.submodule_search_locations
    return Path(folders[0]) if folders else Path(str(spec.origin))


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


def _shown(path: str) -> str:
    return path.encode(errors="surrogateescape").decode(errors="backslashreplace")


def _affected(project: Project, full: Path) -> set[str] | None:
    """Ids of the claims that a changed file can affect; None for all."""
    settings = project.settings
    if full.is_relative_to(project.folder.resolve()):
        return _affected_within(project, full.relative_to(project.folder.resolve()))
    if any(full.is_relative_to(place.resolve()) for place in code_of(project)):
        return None
    if full.parent == project.paths.evidence.resolve():
        return {claim.id for claim in project.claims} & {full.stem}
    if full.parent == project.root.resolve() and full.suffix == ".md":
        return set()
    unmeasured = (settings.tests, settings.reports, *settings.unmeasured)
    return set() if any(full.is_relative_to(each.resolve()) for each in unmeasured) else None


def _affected_within(project: Project, path: Path) -> set[str] | None:
    full, (kind, *rest) = project.folder / path, path.with_suffix("").parts
    if kind == "catalogue" and path.suffix == ".toml" and full.is_file():
        return {claim.id for claim in project.claims if claim.document == path.stem}
    if kind in MEASURING and path.suffix == ".py" and full.is_file() and rest[-1:] not in SHARED:
        module = ".".join((project.package, kind, *rest))
        return {claim.id for claim in project.claims if module in _experiment(project, claim)}
    return None


def _experiment(project: Project, claim: Claim) -> set[str]:
    """The modules that measure a claim, and what they import of modules that measure."""
    return {name for name, _ in module_digests(project.sources(claim), within=project.measuring)}
