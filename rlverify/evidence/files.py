"""Canonical JSON, and files that are replaced together or not at all."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from rlverify.records import interrupts
from rlverify.records.errors import EvidenceError, UnwritableFolderError


def canonical_json(content: object) -> str:
    """JSON that is the same bytes for the same content; an infinite number is the text ``inf`` or ``-inf``.

    :raises ValueError: for what is not a number
    """
    return json.dumps(_without_infinity(content), sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _without_infinity(content: object) -> object:
    if isinstance(content, dict):
        return {name: _without_infinity(value) for name, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_without_infinity(value) for value in content]
    return str(content) if isinstance(content, float) and math.isinf(content) else content


def check_writable(folder: Path) -> None:
    """Make the folder where it is missing, and make sure that files can be written into it, before hours are spent.

    :raises EvidenceError: if they cannot
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return
    except OSError as error:
        raise UnwritableFolderError(folder, str(error.strerror)) from error


def prepare_working_folder(folder: Path) -> None:
    """Make a folder for what is not committed, which Git ignores, and make sure that files can be written into it.

    :raises EvidenceError: if they cannot
    """
    check_writable(folder)
    (folder / ".gitignore").write_text("*\n", encoding="utf-8")


def write_files(folder: Path, texts: Mapping[str, str]) -> None:
    """Write several files, all prepared in a folder next to them before the first is replaced.

    :param texts: relative path to content
    :raises EvidenceError: if they cannot be prepared; then none is replaced
    """
    check_writable(folder)
    try:
        with interrupts.held_back(), tempfile.TemporaryDirectory(prefix=".pending-", dir=folder) as pending:
            for name, text in texts.items():
                _write_synced(Path(pending) / name, text)
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
            for name in texts:
                (Path(pending) / name).replace(folder / name)
    except OSError as error:
        raise EvidenceError(folder, f"cannot be written: {error}") from error


def _write_synced(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
