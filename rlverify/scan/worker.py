"""The process that reads the files of a scan, within limits of memory and time that the system enforces."""

from __future__ import annotations

import faulthandler
import json
import os
import re
import signal
import stat
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

from rlverify.pickles.bounded_reading import DAMAGE, MEBIBYTE, NotScannedError
from rlverify.records.process import pin_threads
from rlverify.scan.findings import ScanFinding
from rlverify.scan.pickle_findings import Place, findings_of_pickles
from rlverify.scan.python_source import findings_of_source
from rlverify.scan.unpacking import HEAD_BYTES, ends_like_a_zip, findings_of_content, is_checkpoint

if sys.platform == "linux":
    import resource

SOURCE_SUFFIXES: Final = frozenset({".py", ".pyw", ".pyi"})


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
            raise NotScannedError("unreadable-file", "it is no regular file")
        with path.open("rb") as content:
            head = content.read(HEAD_BYTES)
            content.seek(0)
            if path.suffix.lower() in SOURCE_SUFFIXES or re.match(rb"#!.*python", head):
                yield from findings_of_source(content.read(), place.path)
            elif is_checkpoint(path.name, head) or ends_like_a_zip(content):
                yield from findings_of_content(content, place)
            else:
                yield from findings_of_pickles(content, place, is_expected=False)
    except DAMAGE as error:
        yield place.problem(error)
