"""Writing never loses the old file, and reading never waits and never reads more than it is allowed to."""

from __future__ import annotations

import errno
import io
import os
import re
import resource
import secrets
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from rlcore.checkpoint import container
from rlcore.checkpoint.container import load_container, save_container, write_atomic
from rlcore.errors import CheckpointError

KILL_ROUNDS = 20
KILLER = """
import os, random, signal, sys, time
from pathlib import Path
from rlcore.checkpoint.container import write_atomic

target, rounds = Path(sys.argv[1]), int(sys.argv[2])
contents = [bytes([letter]) * 3_000_000 for letter in b"ab"]
write_atomic(target, contents[0])
generator = random.Random(5)
for _ in range(rounds):
    writer = os.fork()
    if not writer:
        while True:
            for content in contents:
                write_atomic(target, content)
    time.sleep(generator.uniform(0.002, 0.04))
    os.kill(writer, signal.SIGKILL)
    os.waitpid(writer, 0)
    if target.read_bytes() not in contents:
        sys.exit("the file is damaged")
for path in target.parent.glob(".x.*.tmp"):
    os.utime(path, (0, 0))
write_atomic(target, b"end")
if [path.name for path in target.parent.iterdir()] != ["x"]:
    sys.exit("the file that was left behind was not removed")
"""


@contextmanager
def file_size_limit(limit: int) -> Iterator[None]:
    """Make the system refuse to let any file grow beyond ``limit`` bytes, as a full disk would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_the_system_calls_come_in_the_order_that_survives_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []
    fsync, replace = os.fsync, os.replace

    def record_fsync(descriptor: int) -> None:
        status = os.fstat(descriptor)
        calls.append("fsync folder" if stat.S_ISDIR(status.st_mode) else f"fsync {status.st_size} bytes")
        fsync(descriptor)

    def record_replace(source: Path, target: Path) -> None:
        calls.append(f"replace {Path(target).name} by {Path(source).name}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    write_atomic(tmp_path / "x", b"content")
    assert [re.sub("[0-9a-f]{16}", "<16>", str(call)) for call in calls] == [
        "fsync 7 bytes",
        "replace x by .x.<16>.tmp",
        "fsync folder",
    ]


def test_several_write_one_file_and_none_fails(tmp_path: Path) -> None:
    contents = [letter * 10_000 for letter in (b"a", b"b", b"c")]

    def write_often(content: bytes) -> None:
        for _ in range(50):
            write_atomic(tmp_path / "x", content)
            assert (tmp_path / "x").read_bytes() in contents

    with ThreadPoolExecutor(len(contents)) as writers:
        list(writers.map(write_often, contents))
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_what_a_killed_writer_left_is_removed_after_an_hour_and_nothing_else(tmp_path: Path) -> None:
    old, new = tmp_path / ".x.0123456789abcdef.tmp", tmp_path / ".x.fedcba9876543210.tmp"
    strangers = [tmp_path / name for name in (".x.tmp", ".x.y.0123456789abcdef.tmp", ".y.0123456789abcdef.tmp")]
    for path, age in ((old, 3700), (new, 3500), *((path, 3700) for path in strangers)):
        path.write_bytes(b"remainder")
        os.utime(path, (time.time() - age,) * 2)
    write_atomic(tmp_path / "x", b"new")
    assert sorted(tmp_path.iterdir()) == sorted([tmp_path / "x", new, *strangers])


@pytest.mark.parametrize("plant", [os.mkfifo, lambda path: path.symlink_to(path.with_name("precious"))])
def test_what_is_no_file_of_a_writer_is_neither_waited_for_nor_removed(
    plant: Callable[[Path], object], tmp_path: Path
) -> None:
    (tmp_path / "precious").write_bytes(b"precious")
    planted = tmp_path / ".x.0123456789abcdef.tmp"
    plant(planted)
    write_atomic(tmp_path / "x", b"new")
    assert sorted(tmp_path.iterdir()) == sorted([planted, tmp_path / "precious", tmp_path / "x"])


@pytest.mark.parametrize(("umask", "mode"), [(0o027, 0o640), (0o022, 0o644)])
def test_a_new_file_may_be_read_and_written_as_the_umask_says_and_not_run(
    umask: int, mode: int, tmp_path: Path
) -> None:
    before = os.umask(umask)
    try:
        write_atomic(tmp_path / "x", b"new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == mode


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_not_replaced_by_one(make: Callable[[Path], object], tmp_path: Path) -> None:
    make(tmp_path / "x")
    before = (tmp_path / "x").lstat()
    with pytest.raises(CheckpointError, match="is not a regular file, and is left as it is"):
        save_container(tmp_path / "x", {"n": 1})
    assert (tmp_path / "x").lstat() == before
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize(
    "save",
    [
        lambda path: write_atomic(path, bytes(1_000_000)),
        lambda path: save_container(path, {"x": torch.zeros(250_000)}),
    ],
    ids=["bytes", "tensors"],
)
def test_a_full_disk_leaves_the_old_file_and_one_error(save: Callable[[Path], object], tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"old")
    with (
        file_size_limit(100_000),
        pytest.raises(CheckpointError, match=r"cannot be .*File too large") as caught,
    ):
        save(tmp_path / "x")
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.EFBIG
    assert (tmp_path / "x").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_a_disk_that_fails_later_leaves_the_old_file_and_one_error(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    (tmp_path / "x").write_bytes(b"old")
    monkeypatch.setattr(os, name, fail)
    with pytest.raises(CheckpointError, match="Input/output error"):
        write_atomic(tmp_path / "x", b"new")
    assert (tmp_path / "x").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_link_is_followed_on_writing_and_reading(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "store" / "x")
    save_container(tmp_path / "link", {"n": 1})
    assert (tmp_path / "link").is_symlink()
    assert load_container(tmp_path / "link") == load_container(tmp_path / "store" / "x") == {"n": 1}


def test_a_link_planted_under_the_temporary_name_is_not_written_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda _: "a guess")
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / ".x.a guess.tmp").symlink_to(tmp_path / "precious")
    with pytest.raises(CheckpointError, match="cannot be written"):
        write_atomic(tmp_path / "x", b"new")
    assert (tmp_path / "precious").read_bytes() == b"precious"


@pytest.mark.slow
def test_a_process_killed_while_overwriting_leaves_the_old_or_the_new_file(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLER, str(tmp_path / "x"), str(KILL_ROUNDS)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (result.returncode, result.stderr) == (0, "")


class RecordingFile(io.BytesIO):
    """Counts the writes; ``accepted`` limits what one of them takes, as of a pipe."""

    def __init__(self, accepted: int | None = None) -> None:
        super().__init__()
        self.lengths: list[int] = []
        self.accepted = accepted

    def write(self, content: bytes) -> int:  # type: ignore[override]
        self.lengths.append(len(content))
        return super().write(content[: self.accepted])


def test_a_file_object_gets_one_complete_write() -> None:
    file = RecordingFile()
    save_container(file, {"n": 1})
    assert file.lengths == [len(file.getvalue())]
    file.seek(0)
    assert load_container(file) == {"n": 1}


def test_a_file_object_that_takes_only_a_part_is_an_error() -> None:
    with pytest.raises(CheckpointError, match="file object: only 100 of"):
        save_container(RecordingFile(accepted=100), {"n": 1})


def test_a_text_file_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"reading gave str, not bytes; .*binary mode"):
        load_container(io.StringIO("text"))  # type: ignore[arg-type]


def test_a_missing_file_a_folder_and_a_loop_of_links_are_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, said in [("missing", "No such file"), (".", "directory"), ("loop", "cannot be read")]:
        with pytest.raises(CheckpointError, match=said):
            load_container(tmp_path / name)
    with pytest.raises(CheckpointError, match="cannot be written"):
        write_atomic(tmp_path / "loop", b"new")


def test_a_named_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="not a regular file"):
        load_container(tmp_path / "pipe")


@pytest.mark.parametrize("as_file_object", [False, True])
def test_a_file_is_not_read_beyond_the_limit(
    as_file_object: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_container(tmp_path / "x", {"n": 1})
    content = (tmp_path / "x").read_bytes()
    for limit in (len(content) - 1, len(content)):
        monkeypatch.setattr(container, "MAX_BYTES", limit)
        source = io.BytesIO(content) if as_file_object else tmp_path / "x"
        if limit == len(content):
            assert load_container(source) == {"n": 1}
        else:
            with pytest.raises(CheckpointError, match=rf"larger than {limit} bytes"):
                load_container(source)
