"""Which files a scan reads, in which order; what cannot be read is one finding and the rest goes on."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from rlverify.records.errors import UsageError
from rlverify.scan import scan, scanning
from rlverify.scan.scanning import SKIPPED_FOLDERS, files_of, findings_of_file

HOSTILE = pickle.dumps([eval, 1])
CALL = "import pickle\npickle.load(f)\n"


def write(path: Path, content: str | bytes = CALL) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rules(*paths: Path) -> list[tuple[str, str]]:
    return [(Path(each.path).name, each.rule) for each in scan(paths)]


def test_files_are_scanned_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b.py", "a/z.py", "a/b.pkl", "c/x.py", "A.py"):
        write(tmp_path / name, HOSTILE if name.endswith(".pkl") else CALL)
    paths = [Path(each.path).relative_to(tmp_path).as_posix() for each in scan([tmp_path])]
    assert paths == ["A.py", "b.py", "a/b.pkl", "a/z.py", "c/x.py"]


def test_paths_are_scanned_in_their_order_and_each_file_once(tmp_path: Path) -> None:
    one, two = write(tmp_path / "1.py"), write(tmp_path / "2.py")
    assert [name for name, _ in rules(two, tmp_path, one)] == ["2.py", "1.py"]


@pytest.mark.parametrize("name", [*sorted(SKIPPED_FOLDERS), "env"])
def test_some_folders_are_skipped(name: str, tmp_path: Path) -> None:
    write(tmp_path / "a" / name / "x.py")
    if name == "env":
        assert rules(tmp_path) == [("x.py", "pickle-load")]
        write(tmp_path / "a" / name / "pyvenv.cfg", "")
    left: list[Path] = []
    assert scan([tmp_path], left.append) == ()
    assert left == [tmp_path / "a" / name]
    assert rules(tmp_path / "a" / name) == [("x.py", "pickle-load")]
    assert {".git", ".venv", "node_modules", "__pycache__"} == SKIPPED_FOLDERS


def test_a_file_is_known_by_its_suffix_or_first_bytes(tmp_path: Path) -> None:
    write(tmp_path / "a.pyw")
    write(tmp_path / "b", f"#!/usr/bin/env python3\n{CALL}")
    write(tmp_path / "c.bin", HOSTILE)
    write(tmp_path / "d.txt", CALL)
    write(tmp_path / "e.PKL", HOSTILE)
    write(tmp_path / "f.sh", f"#!/bin/sh\n{CALL}")
    assert [name for name, _ in rules(tmp_path)] == ["a.pyw", "b", "c.bin", "e.PKL"]


def test_an_old_pickle_is_found_under_any_name(tmp_path: Path) -> None:
    write(tmp_path / "a.dat", b"cposix\nsystem\n(S'x'\ntR.")
    write(tmp_path / "b.txt", b"cats and dogs\nare here\n.")
    write(tmp_path / "c.txt", b"cposix\nsystem\n(S'x'\ntR and so on\xff")
    write(tmp_path / "d.txt", b"cposix\nsystem\nand so on\xff")
    assert rules(tmp_path) == [("a.dat", "pickle-dangerous-import"), ("c.txt", "pickle-dangerous-import")]


def test_an_archive_with_bytes_before_it_is_found_under_any_name(tmp_path: Path) -> None:
    path = write(tmp_path / "run.sh", b"#!/bin/sh\n")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("data.pkl", HOSTILE)
    assert rules(path) == [("run.sh", "pickle-dangerous-import")]


def test_python_source_is_also_read_as_what_it_may_be_to_others(tmp_path: Path) -> None:
    write(tmp_path / "a.py", 'cbuiltins\nexec\n(V1,"\\u0022,print(1)\\u0023")\ntR.x\n')  # a program and a pickle
    write(tmp_path / "b.py", b"cposix\nsystem\n(S'x'\ntR.")
    write(tmp_path / "c.py", "import pickle\nclass C:\n    pass\n")
    for name, start in (("d", b"#!/usr/bin/env python\n"), ("e.py", b"")):
        with zipfile.ZipFile(write(tmp_path / name, start), "a") as archive:
            archive.writestr("data.pkl", HOSTILE)
    found = rules(tmp_path)
    assert [name for name, rule in found if rule == "pickle-dangerous-import"] == ["a.py", "b.py", "d", "e.py"]
    assert [name for name, rule in found if rule == "unreadable-file"] == ["b.py", "d", "e.py"]  # as Python


BROKEN: dict[str, str | bytes] = {
    "syntax.py": "def f(:\n",
    "bytes.py": b"x = '\xff'",
    "nested.py": "(" * 100_000,
    "empty.pkl": b"",
    "cut.pkl": HOSTILE[:5],
    "cut.zip": b"PK\x03\x04damaged",
    "cut.npy": b"\x93NUMPY\x01\x00\x40\x00{'descr': '|O'}",
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_read_is_one_finding_and_the_rest_goes_on(name: str, tmp_path: Path) -> None:
    write(tmp_path / name, BROKEN[name])
    write(tmp_path / "zz.py")
    assert rules(tmp_path) == [(name, "unreadable-file"), ("zz.py", "pickle-load")]


def test_a_huge_source_file_is_one_finding(tmp_path: Path) -> None:
    write(tmp_path / "a.py", "x = 1\n" * 2_000_000)
    write(tmp_path / "b.py")
    assert rules(tmp_path) == [("a.py", "scan-limit"), ("b.py", "pickle-load")]


def test_a_file_that_may_not_be_read_is_one_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = write(tmp_path / "a.py")

    def guarded(self: Path, *_: object) -> object:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", guarded)
    (first,) = findings_of_file(secret)
    assert (first.rule, "Permission denied" in first.message) == ("unreadable-file", True)


def test_links_to_folders_are_not_followed_and_broken_links_are_reported(tmp_path: Path) -> None:
    write(tmp_path / "a" / "x.py")
    (tmp_path / "a" / "loop").symlink_to(tmp_path / "a", target_is_directory=True)
    (tmp_path / "a" / "gone.py").symlink_to(tmp_path / "nowhere.py")
    assert rules(tmp_path) == [("gone.py", "unreadable-file"), ("x.py", "pickle-load")]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems make no such folders")
def test_a_folder_that_cannot_be_listed_is_one_finding_and_the_rest_goes_on(tmp_path: Path) -> None:
    place = os.open(write(tmp_path / "x.py").parent, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("d" * 250, dir_fd=place)
        place = os.open("d" * 250, os.O_RDONLY, dir_fd=place)
    assert rules(tmp_path) == [("x.py", "pickle-load"), ("d" * 250, "unreadable-file")]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="may list every folder")
@pytest.mark.parametrize("mode", [0o000, 0o444])
def test_a_folder_without_permission_is_one_finding(mode: int, tmp_path: Path) -> None:
    write(tmp_path / "a" / "in" / "x.py")
    (tmp_path / "a").chmod(mode)
    assert {rule for _, rule in rules(tmp_path)} == {"unreadable-file"}
    (tmp_path / "a").chmod(0o700)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_not_opened_and_reported(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.pkl")
    assert rules(tmp_path, tmp_path / "pipe.pkl") == [("pipe.pkl", "unreadable-file")]


def test_a_path_that_does_not_exist_is_an_error_before_anything_is_scanned(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no file or folder .*missing.*nothing was scanned"):
        scan([tmp_path, tmp_path / "missing"])


def test_paths_are_reported_as_they_were_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a" / "x.py")
    monkeypatch.chdir(tmp_path)
    assert [each.path for each in scan(["a"])] == ["a/x.py"]
    assert [path.as_posix() for path in files_of(["."], print)] == ["a/x.py"]
    assert scan([]) == ()


def test_what_takes_too_long_is_one_finding_next_to_what_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = b"\x80\x04" + b"N0" * 2_000_000 + b"."
    with zipfile.ZipFile(tmp_path / "many.zip", "w") as archive:
        archive.writestr("a.pkl", HOSTILE)
        for number in range(50):
            archive.writestr(f"{number}.pkl", slow)
    (tmp_path / "one.pkl").write_bytes(HOSTILE + slow)
    write(tmp_path / "x.py")
    monkeypatch.setattr(scanning, "MAX_SECONDS", 0.5)

    found = scan([tmp_path / "many.zip", tmp_path / "one.pkl", tmp_path / "x.py"])

    assert [(each.rule, each.field) for each in found] == [
        ("pickle-dangerous-import", "a.pkl"),
        ("scan-limit", ""),
        ("pickle-dangerous-import", ""),
        ("scan-limit", ""),
        ("pickle-load", ""),
    ]
    assert found[1].message == "takes more than 0.5 s or 256 MiB; the rest was not scanned"


def test_more_findings_than_are_kept_are_one_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "MAX_FINDINGS", 2)
    for lines in (2, 3):
        write(tmp_path / f"{lines}.py", "import pickle\n" + "pickle.load(f)\n" * lines)
    found = rules(tmp_path)
    assert found == [("2.py", "pickle-load")] * 2 + [("3.py", "pickle-load")] * 2 + [("3.py", "scan-limit")]


def test_files_are_read_by_one_process_that_begins_with_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []

    class Recorded(subprocess.Popen[bytes]):
        def __init__(self, command: list[str], **options: Any) -> None:
            started.append(command)
            super().__init__(command, **options)

    monkeypatch.setattr(subprocess, "Popen", Recorded)
    assert (scan([tmp_path]), started) == ((), [])
    for name in "abc":
        write(tmp_path / f"{name}.py")
    assert (len(scan([tmp_path])), len(started)) == (3, 1)
