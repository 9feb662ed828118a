"""Scans files and folders: which files, in which order, and by what each is scanned."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final

from rlverify.pickles.bounded_reading import DAMAGE, NotScannedError, time_limited, unreadable
from rlverify.records.errors import UsageError
from rlverify.scan.findings import ScanFinding
from rlverify.scan.pickle_findings import Place, findings_of_pickles
from rlverify.scan.python_source import MAX_SOURCE_BYTES, findings_of_source
from rlverify.scan.unpacking import HEAD_BYTES, ends_like_a_zip, findings_of_content, is_checkpoint

SKIPPED_FOLDERS: Final = frozenset({".git", ".venv", "node_modules", "__pycache__"})
_SOURCE_SUFFIXES: Final = frozenset({".py", ".pyw", ".pyi"})


def scan(paths: Sequence[str | os.PathLike[str]]) -> tuple[ScanFinding, ...]:
    """Return everything that these files, and the files in these folders, trust or would execute.

    Nothing is imported, unpickled or executed. A file that cannot be scanned gives a finding.

    :raises UsageError: if a path does not exist
    """
    if missing := [str(path) for path in map(Path, paths) if not os.path.lexists(path)]:
        raise UsageError(f"there is no file or folder {missing[0]!r}, so nothing was scanned; name one that exists")
    return tuple(finding for path in files_of(paths) for finding in findings_of_file(path))


def files_of(paths: Sequence[str | os.PathLike[str]]) -> Iterator[Path]:
    """Yield each file once. Links to folders are not followed, and `SKIPPED_FOLDERS` are left out."""
    seen: set[Path] = set()
    for path in map(Path, paths):
        for file in _files_in(path) if path.is_dir() else [path]:
            if (place := file.absolute()) not in seen:
                seen.add(place)
                yield file


def _files_in(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(set(folders) - SKIPPED_FOLDERS)
        for name in sorted(files):
            yield Path(place, name)


def findings_of_file(path: Path) -> list[ScanFinding]:
    """Return what one file trusts or would execute."""
    place, found = Place(path.as_posix()), list[ScanFinding]()
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise NotScannedError("unreadable-file", "it is no regular file")
        with path.open("rb") as content, time_limited():
            for each in _findings_of_open_file(content, path, place):
                found.append(each)  # those before an error count
    except NotScannedError as error:
        found.append(place.problem(error))
    except DAMAGE as error:
        found.append(place.problem(unreadable(error)))
    return found


def _findings_of_open_file(content: BinaryIO, path: Path, place: Place) -> Iterator[ScanFinding]:
    head = content.read(HEAD_BYTES)
    content.seek(0)
    if path.suffix.lower() in _SOURCE_SUFFIXES or re.match(rb"#!.*python", head):
        yield from findings_of_source(content.read(MAX_SOURCE_BYTES + 1), place.path)
    elif is_checkpoint(path.name, head) or ends_like_a_zip(content):
        yield from findings_of_content(content, place)
    else:
        yield from findings_of_pickles(content, place, is_expected=False)
