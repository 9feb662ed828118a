"""Canonical JSON with its seal, and files that are read, and replaced together or not at all.

Each committed file of measurements carries a digest of its own content, so that an edit by hand is detected. Whoever
computes the digest again can forge a file all the same. So the gate also measures what a change touches.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from pydantic import ValidationError

from rlverify.records import process
from rlverify.records.errors import EvidenceError


def canonical_json(content: object) -> str:
    """JSON that is the same bytes for the same content; an infinite number is the text ``inf`` or ``-inf``."""
    return json.dumps(_without_infinity(content), sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _without_infinity(content: object) -> object:
    if isinstance(content, dict):
        return {name: _without_infinity(value) for name, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_without_infinity(value) for value in content]
    return str(content) if isinstance(content, float) and math.isinf(content) else content


def shown_path(path: Path, folder: Path) -> str:
    """A path relative to a folder if it is inside, otherwise the absolute path; with slashes everywhere."""
    resolved, root = path.resolve(), folder.resolve()
    return (resolved.relative_to(root) if resolved.is_relative_to(root) else resolved).as_posix()


def check_writable(folder: Path) -> None:
    """Make the folder where it is missing, and make sure that files can be written into it, before hours are spent."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return
    except OSError as error:
        advice = "nothing was changed; make it writable, or choose another folder"
        raise EvidenceError(folder, f"cannot be written: {error.strerror}; {advice}") from error


def prepare_working_folder(folder: Path) -> None:
    """Make a folder for what is not committed, which Git ignores, and make sure that files can be written into it."""
    check_writable(folder)
    (folder / ".gitignore").write_text("*\n", encoding="utf-8")


def write_files(folder: Path, texts: Mapping[str, str]) -> None:
    """Write several files, all prepared in a folder next to them before the first is replaced.

    :raises EvidenceError: if they cannot be prepared; then none is replaced
    """
    check_writable(folder)
    try:
        with process.held_back(), tempfile.TemporaryDirectory(prefix=".pending-", dir=folder) as pending:
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


def text_of(path: Path) -> str:
    """The text of a regular file; another could be waited for without end."""
    if path.exists() and not path.is_file():
        raise EvidenceError(path, "is no regular file; remove it")
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise EvidenceError(path, f"cannot be read: {error}") from error


def json_of(text: str, path: Path) -> Any:
    """The content of a JSON text; raises EvidenceError if an object has a name twice."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        if twice := [name for name in names if names.count(name) > 1]:
            raise EvidenceError(path, f"has the name {twice[0]!r} twice in one object; measure it again")
        return dict(pairs)

    return json.loads(text, object_pairs_hook=unique)


def first_problem(error: ValidationError) -> str:
    """The first thing that is wrong with the content of a file, after the field that it is wrong with."""
    first = error.errors()[0]
    field = ".".join(map(str, first["loc"]))
    return f"{field}: {first['msg']}" if field else first["msg"]


def sealed(content: Mapping[str, Any]) -> str:
    """Canonical JSON of the content with its digest."""
    return canonical_json({**content, "digest": hashlib.sha256(canonical_json(content).encode()).hexdigest()[:16]})


LOCK = "lock"


@contextmanager
def alone_in(folder: Path, on_wait: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of a working folder, which is made where it is missing; the lock ends with the process.

    :param on_wait: called with a sentence if another process has the lock, before this one waits for it
    """
    prepare_working_folder(folder)
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        on_wait(f"another rlverify process is measuring in {folder}; waiting for it to end")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
