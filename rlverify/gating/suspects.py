"""Names the files that may have made a claim fall."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from rlverify.gating.changes import changed_files
from rlverify.project.content import Project
from rlverify.project.fingerprint import is_within, module_digests, module_path
from rlverify.records.claims import Claim
from rlverify.reporting.record import Record

FRAME = re.compile(r'^  File "(.+)", line \d+', re.MULTILINE)


def suspects(record: Record) -> tuple[str, ...]:
    """Files under test that may be the reason, the likeliest first: where a run crashed, and what changed.

    A file that changed and in which a run crashed comes before all others.
    """
    crashed = [name for run in record.runs if run.traceback for name in _places(run.traceback, record.claim)]
    both = [name for name in crashed if name in record.changed]
    return tuple(dict.fromkeys([*both, *record.changed, *crashed]))


def _places(traceback: str, claim: Claim) -> list[str]:
    """The files of a traceback that are in a package which the claim is about, the deepest first."""
    packages = {_package(module) for module in claim.modules}
    return [name for name in reversed(FRAME.findall(traceback)) if packages & {Path(name), *Path(name).parents}]


def _package(module: str) -> Path:
    """The folder of the top-level package of a module, or its file where it is in none."""
    path = module_path(module)
    places = [path, *path.parents]
    return places[module.count(".") + (path.name == "__init__.py")]


def changed_code(project: Project) -> frozenset[str]:
    """Files of the packages under test that changed since the evidence was committed; empty where Git cannot tell."""
    command = ["git", "-C", str(project.root), "log", "-1", "--format=%H %ct", "--", str(project.paths.evidence)]
    try:
        commit, _, _ = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip().partition(" ")
        shown = ["git", "-C", str(project.root), "rev-parse", "--show-toplevel"]
        top = Path(subprocess.run(shown, check=True, capture_output=True, text=True).stdout.removesuffix("\n"))
        return frozenset(str(top / name) for name in changed_files(top, commit or "HEAD"))
    except (OSError, subprocess.CalledProcessError):
        return frozenset()


def changed_of(project: Project, claim: Claim, changed: frozenset[str]) -> tuple[str, ...]:
    """Of some changed files those that a claim is about: modules that it names, and then what these import."""
    named = project.modules(claim)
    within = project.settings.under_test
    imported = [name for name, _ in module_digests(named, within=within) if name not in named]
    modules = [name for name in (*named, *imported) if is_within(name, within)]
    files = [str(module_path(name).resolve()) for name in modules]
    return tuple(each for each in files if each in changed)
