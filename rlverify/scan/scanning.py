"""Scans files and folders: which files, in which order, and what to do with one that takes too much."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import IO, Final, cast

from rlverify.pickles.bounded_reading import NotScannedError
from rlverify.records.errors import UsageError
from rlverify.scan.findings import ScanFinding
from rlverify.scan.pickle_findings import Place

SKIPPED_FOLDERS: Final = frozenset({".git", ".venv", "node_modules", "__pycache__"})
MAX_SECONDS: Final = 25.0
MAX_MEBIBYTES: Final = 256
MAX_FINDINGS: Final = 10_000
"""Of one file each. The worker keeps to time and memory, and this process to the findings that it keeps."""
_SERVE: Final = (
    "import json, sys; sys.path[:], *limits = json.loads(sys.argv[1]); "
    "from rlverify.scan.worker import serve; serve(*limits)"
)


def scan(
    paths: Sequence[str | os.PathLike[str]], on_skip: Callable[[Path], object] = lambda _: None
) -> tuple[ScanFinding, ...]:
    """Return everything that these files, and the files in these folders, trust or would execute.

    Nothing is imported, unpickled or executed. A file that cannot be scanned gives a finding.

    :param on_skip: is called with each folder that is left out: a virtual environment, or one of `SKIPPED_FOLDERS`
    :raises UsageError: if a path does not exist
    """
    if missing := [str(path) for path in map(Path, paths) if not os.path.lexists(path)]:
        raise UsageError(f"there is no file or folder {missing[0]!r}, so nothing was scanned; name one that exists")
    return tuple(_findings(files_of(paths, on_skip)))


def files_of(paths: Sequence[str | os.PathLike[str]], on_skip: Callable[[Path], object]) -> Iterator[Path]:
    """Yield each file once. Links to folders are not followed."""
    seen: set[Path] = set()
    for path in map(Path, paths):
        for file in _files_in(path, on_skip) if path.is_dir() else [path]:
            if (place := file.absolute()) not in seen:
                seen.add(place)
                yield file


def _files_in(folder: Path, on_skip: Callable[[Path], object]) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        for name in sorted(folders):
            if name in SKIPPED_FOLDERS or Path(place, name, "pyvenv.cfg").is_file():
                folders.remove(name)
                on_skip(Path(place, name))
        folders.sort()
        for name in sorted(files):
            yield Path(place, name)


def _findings(files: Iterator[Path]) -> Iterator[ScanFinding]:
    """Yield the findings of all files, read by a process that is replaced when it has exceeded a limit."""
    # isolated, with the path of this process: a folder to be scanned may hold a json.py
    command = [sys.executable, "-Iu", "-c", _SERVE, json.dumps([sys.path, MAX_SECONDS, MAX_MEBIBYTES])]
    for first in files:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
            try:
                for path in chain([first], files):
                    if reason := (yield from _findings_of_file(worker, path)):
                        yield Place(path.as_posix()).problem(NotScannedError("scan-limit", reason))
                        break
            finally:
                worker.kill()


def _findings_of_file(worker: subprocess.Popen[bytes], path: Path) -> Generator[ScanFinding, None, str]:
    """Yield what the worker reports, and return why that is not all, if so."""
    requests, answers = cast(IO[bytes], worker.stdin), cast(IO[bytes], worker.stdout)
    with suppress(OSError):  # of a worker that died; there are no answers then
        os.write(requests.fileno(), json.dumps(str(path)).encode() + b"\n")
    for number, line in enumerate(answers):
        if not line.strip():
            return ""
        if number == MAX_FINDINGS:
            return f"has more than {MAX_FINDINGS} findings; the rest was not scanned"
        yield ScanFinding(**json.loads(line))
    return f"takes more than {MAX_SECONDS:g} s or {MAX_MEBIBYTES} MiB; the rest was not scanned"
