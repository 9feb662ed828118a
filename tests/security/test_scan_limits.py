"""What a hostile file costs a scan: at most 256 MiB and some seconds; one finding says that the rest was left out."""

from __future__ import annotations

import gzip
import io
import json
import os
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

SCAN = """
import json, re, resource, sys
from pathlib import Path
from rlverify.scan import scan
found = scan(sys.argv[1:])
own = int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]) if sys.platform == "linux" else 0
peaks = own // 1024, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
print(json.dumps([[[each.path, each.rule] for each in found], peaks]))
"""
INTERPRETER = 40
"""MiB that a process takes which reads small files."""
CALL = b"cposix\nsystem\n)R"


def fields(count: int) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data", b'{"a":[' + b"[]," * count + b"[]]}")
    return file.getvalue()


def members(count: int) -> bytes:
    """An archive that is only a directory; its end does not say how many members there are."""
    entry = struct.pack("<4s6H3L5H2L", b"PK\1\2", *[0] * 9, 1, *[0] * 6) + b"x"
    return b"PK\3\4" + entry * count + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0, 0, len(entry) * count, 4, 0)


FILES: dict[str, Callable[[], bytes]] = {
    "a list in source.py": lambda: b"x=[" + b"0," * 2**20 + b"]",
    "long chains in source.py": lambda: (b"x" + b".a" * 2900 + b"\n") * 1000,
    "calls of results in source.py": lambda: (b"x=f" + b"()" * 900 + b"\n") * 2000,
    "dictionary.lzma": lambda: b"\x5d" + (3 << 30).to_bytes(4, "little") + b"\xff" * 8 + bytes(100),
    "fields.zip": lambda: fields(2**23),
    "header.npy": lambda: b"\x93NUMPY\2\0" + struct.pack("<L", 2**30),
    "members.pt": lambda: members(2**20),
    "texts.pkl": lambda: gzip.compress(CALL + b"(" + (b"\x8c\xc8" + b"a" * 200) * 1_250_000 + b"t.", 1),
}


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[list[str]], list[int]]:
    """Path and rule of each finding, and the peaks in MiB of the process that scans and of the one that reads."""
    folder = tmp_path_factory.mktemp("files")
    for name, content in FILES.items():
        (folder / name).write_bytes(content())
    os.truncate(folder / "header.npy", 2**30 + 12)
    (folder / "z.pkl").write_bytes(CALL + b".")
    done = subprocess.run([sys.executable, "-c", SCAN, folder], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    found, peaks = json.loads(done.stdout)
    return [[Path(path).name, rule] for path, rule in found], peaks


def test_one_finding_next_to_what_was_found_says_what_was_left_out(
    scanned: tuple[list[list[str]], list[int]],
) -> None:
    limits = [[name, "scan-limit"] for name in sorted(FILES)]
    found = [["texts.pkl", "pickle-dangerous-import"], ["z.pkl", "pickle-dangerous-import"]]
    assert sorted(scanned[0]) == sorted(limits + found)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, memory is not limited")
def test_no_file_takes_more_than_256_mebibytes(scanned: tuple[list[list[str]], list[int]]) -> None:
    own, of_worker = scanned[1]
    assert own < INTERPRETER + 20
    assert of_worker < INTERPRETER + 256
