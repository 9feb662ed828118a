"""A copy of this repository in a Git repository of its own, for what edits files of the core."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def copy_repository(folder: Path) -> Path:
    """Copy the working tree as it is, without what Git ignores, and commit it; the folder is made."""
    listed = _git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "-z").split("\0")
    for name in filter(None, listed):
        if (ROOT / name).is_file():  # a deleted file is listed as well
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
    _git(folder, "init", "--quiet", "--initial-branch", "main")
    commit(folder)
    return folder


def commit(folder: Path) -> None:
    """Commit all that has changed in a copy."""
    _git(folder, "add", ".")
    _git(folder, "-c", "user.name=copy", "-c", "user.email=copy@example.org", "commit", "--quiet", "-m", "copy")


def environment(folder: Path) -> dict[str, str]:
    """An environment in which Python imports all packages from a copy and measures with one thread."""
    return {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}


def _git(folder: Path, *arguments: str) -> str:
    settings = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=settings).stdout
