"""Asks Git what has changed since a commit."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rlverify.project.catalogue import load
from rlverify.project.citations import Documents
from rlverify.project.content import Project
from rlverify.records.claims import Claim
from rlverify.records.errors import HarnessError

MAIN_BRANCHES: Final = ("origin/HEAD", "origin/main", "origin/master", "main", "master")
"""With the first that exists, the merge base is looked for."""


class UnknownChangesError(HarnessError):
    """Git cannot tell what has changed."""


@dataclass(frozen=True)
class Base:
    """The commit that the working tree is compared with."""

    top: Path
    commit: str

    @cached_property
    def changed(self) -> frozenset[Path]:
        """The files that differ from it, deleted and untracked ones included."""
        difference = git(self.top, "diff", "--name-only", "--no-renames", "-z", self.commit, "--")
        untracked = git(self.top, "ls-files", "--others", "--exclude-standard", "-z")
        return frozenset((self.top / path).resolve() for path in {*difference, *untracked})

    def text(self, path: Path) -> str | None:
        """A file as it is in that commit; None where it is not there."""
        if not path.resolve().is_relative_to(self.top):
            return None
        name = path.resolve().relative_to(self.top).as_posix()
        if not git(self.top, "ls-tree", self.commit, "--", name):
            return None
        return "\0".join(git(self.top, "show", f"{self.commit}:{name}"))

    def copy(self, folder: Path, target: Path) -> Path:
        """Write the files of a folder, as they are in that commit, into another folder, which it returns."""
        target.mkdir()
        changed = {path for path in self.changed if path.parent == folder.resolve()}
        for path in {path.resolve() for path in folder.glob("*.*") if path.is_file()} - changed:
            shutil.copyfile(path, target / path.name)
        for path in changed:
            if (text := self.text(path)) is not None:
                (target / path.name).write_text(text, encoding="utf-8", errors="surrogateescape")
        return target


def claims_at(project: Project, base: Base) -> Mapping[str, Claim]:
    """The claims of the catalogue as it is at the base, by id; none where the base has no catalogue.

    :raises CatalogueError: if this version cannot read it
    """
    folders = project.catalogue_folder, project.documents_folder
    if not {folder.resolve() for folder in folders} & {path.parent for path in base.changed}:
        return {claim.id: claim for claim in project.claims}
    with TemporaryDirectory() as copies:
        catalogue, documents = (base.copy(each, Path(copies) / str(number)) for number, each in enumerate(folders))
        found = load(catalogue, Documents.read(documents)) if any(catalogue.iterdir()) else ()
        return {claim.id: claim for claim in found}


def find_base(project: Project, asked: str | None) -> Base:
    """The commit to compare with.

    :param asked: a Git revision; by default, and where it is empty, the merge base of HEAD and the main branch, or, on
        the main branch, the commit before HEAD; HEAD itself where there is none
    :raises UnknownChangesError: if Git cannot tell, as in a clone without the commit before HEAD
    """
    try:
        top = Path(git(project.root, "rev-parse", "--show-toplevel")[0].removesuffix("\n")).resolve()
        return Base(top, _asked_commit(top, asked) if asked else _default_base(top))
    except (OSError, subprocess.CalledProcessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[0]
        raise UnknownChangesError(
            f"Git does not tell what changed since {asked or 'the main branch'}: {said}"
        ) from error


def _default_base(top: Path) -> str:
    head = _commit(top, "HEAD")
    if not head:
        raise UnknownChangesError("the repository has no commit to compare with; commit the project first")
    target = os.environ.get("GITHUB_BASE_REF")
    branches = (_commit(top, branch) for branch in (*[f"origin/{target}"] * bool(target), *MAIN_BRANCHES))
    merged = (answer(top, "merge-base", head, branch) for branch in branches if branch)
    found = next(filter(None, merged), head)
    found = found if found != head else _commit(top, "HEAD~1") or head
    if found == head and answer(top, "rev-parse", "--is-shallow-repository") == "true":
        raise UnknownChangesError(
            "this clone has no commit before HEAD; fetch the history (fetch-depth: 0 in a workflow)"
        )
    return found


def known_base(project: Project) -> Base | None:
    """As `find_base`, by default; None where Git cannot tell."""
    try:
        return find_base(project, None)
    except UnknownChangesError:
        return None


def _asked_commit(top: Path, revision: str) -> str:
    if found := _commit(top, revision):
        return found
    raise UnknownChangesError(f"Git knows no commit {revision!r}; correct --base, or fetch the history")


def _commit(top: Path, revision: str) -> str:
    return answer(top, "rev-parse", "--verify", f"{revision}^{{commit}}")


def answer(folder: Path, *arguments: str) -> str:
    """What a command says; empty without Git, or if it fails."""
    try:
        return "".join(git(folder, *arguments)).strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def git(folder: Path, *arguments: str) -> list[str]:
    """What a command says, in parts; without the variables by which another repository is named."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(folder), *arguments]
    done = subprocess.run(command, check=True, capture_output=True, env=own, encoding="utf-8", errors="surrogateescape")
    return [part for part in done.stdout.split("\0") if part]
