"""Scans files and folders, in a process with limits of memory and time that the system enforces."""

from __future__ import annotations

import faulthandler
import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import IO, Final, cast

from rlverify.pickles import DAMAGE, MEBIBYTE, NotScannedError
from rlverify.records.errors import UsageError
from rlverify.records.process import pin_threads
from rlverify.scan.findings import Place, ScanFinding, findings_of_pickles
from rlverify.scan.python_source import findings_of_source
from rlverify.scan.unpacking import HEAD_BYTES, ends_like_a_zip, findings_of_content, is_checkpoint

SKIPPED_FOLDERS: Final = frozenset({".git", ".venv", "node_modules", "__pycache__"})
MAX_SECONDS: Final = 25.0
MAX_MEBIBYTES: Final = 256
MAX_FINDINGS: Final = 10_000
"""Of one file each. The worker keeps to time and memory, and this process to the findings that it keeps."""
_SERVE: Final = (
    "import json, sys; sys.path[:], *limits = json.loads(sys.argv[1]); "
    "from rlverify.scan.scanning import serve; serve(*limits)"
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
        for file in _files_in(path, on_skip) if os.path.isdir(path) else [path]:  # noqa: PTH112  # never raises
            if (place := file.absolute()) not in seen:
                seen.add(place)
                yield file


def _files_in(folder: Path, on_skip: Callable[[Path], object]) -> Iterator[Path]:
    closed: list[OSError] = []
    for place, folders, files in os.walk(folder, onerror=closed.append):
        for name in sorted(folders):
            if name in SKIPPED_FOLDERS or os.path.isfile(Path(place, name, "pyvenv.cfg")):  # noqa: PTH113  # never raises
                folders.remove(name)
                on_skip(Path(place, name))
        folders.sort()
        for name in sorted(files):
            yield Path(place, name)
    yield from (Path(each.filename) for each in closed)  # each becomes a finding


def _findings(files: Iterator[Path]) -> Iterator[ScanFinding]:
    """Yield the findings of all files, read by a process that is replaced when it has exceeded a limit."""
    # isolated, with the path of this process: a folder to be scanned may hold a json.py
    command = [sys.executable, "-Iu", "-c", _SERVE, json.dumps([sys.path, MAX_SECONDS, MAX_MEBIBYTES])]
    for first in files:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
            try:
                for path in chain([first], files):
                    if reason := (yield from _answers(worker, path)):
                        yield Place(path.as_posix()).problem(NotScannedError("scan-limit", reason))
                        break
            finally:
                worker.kill()


def _answers(worker: subprocess.Popen[bytes], path: Path) -> Generator[ScanFinding, None, str]:
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


SOURCE_SUFFIXES: Final = frozenset({".py", ".pyw", ".pyi"})
_COUNTED_IN_SOURCE: Final = ("pickle-dangerous-import", "scan-limit")


def serve(seconds: float, mebibytes: int) -> None:
    """Read a path from each line of stdin as JSON, and write each finding as JSON; an empty line ends those of a file.

    A file that takes too much ends the process. Where the system cannot limit memory, time alone counts.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.unraisablehook = lambda _: None  # where memory ends, destructors fail
    pin_threads()
    with Path(os.devnull).open("w") as nowhere:
        for line in sys.stdin:
            faulthandler.dump_traceback_later(seconds, exit=True, file=nowhere)
            if sys.platform == "linux":
                import resource  # which other systems lack

                used = int(Path("/proc/self/statm").read_text("ascii").split()[5]) * resource.getpagesize()
                resource.setrlimit(resource.RLIMIT_DATA, (used + mebibytes * MEBIBYTE, resource.RLIM_INFINITY))
            try:
                for each in findings_of_file(Path(json.loads(line))):
                    sys.stdout.write(json.dumps(asdict(each)) + "\n")
            except MemoryError:
                os._exit(1)
            faulthandler.cancel_dump_traceback_later()
            sys.stdout.write("\n")


def findings_of_file(path: Path) -> Iterator[ScanFinding]:
    """Yield what one file trusts or would execute."""
    place = Place(path.as_posix())
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise NotScannedError("unreadable-file", "it is no regular file, or a folder that cannot be listed")
        with path.open("rb") as content:
            head = content.read(HEAD_BYTES)
            content.seek(0)
            is_source = path.suffix.lower() in SOURCE_SUFFIXES or re.match(rb"#!.*python", head)
            if is_checkpoint(path.name, head) or ends_like_a_zip(content):
                findings = findings_of_content(content, place)
            else:
                findings = findings_of_pickles(content, place, is_expected=False)
            # Python source can be a pickle or an archive too; most is neither, and so only what executes counts.
            yield from (each for each in findings if not is_source or each.rule in _COUNTED_IN_SOURCE)
            if is_source:
                content.seek(0)
                yield from findings_of_source(content.read(), place.path)
    except DAMAGE as error:
        yield place.problem(error)
