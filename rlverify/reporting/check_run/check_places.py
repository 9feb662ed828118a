"""Paths of subjects, as reports name them."""

from __future__ import annotations

from pathlib import Path


def shown_path(path: Path, folder: Path) -> str:
    """A path relative to a folder if it is inside, otherwise the absolute path; with slashes everywhere."""
    resolved, root = path.resolve(), folder.resolve()
    return (resolved.relative_to(root) if resolved.is_relative_to(root) else resolved).as_posix()
