"""Pickles are found wherever a checkpoint file may hold them, and limits keep hostile files cheap."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch

from rlverify.pickles import MEBIBYTE
from rlverify.scan import unpacking
from rlverify.scan.findings import Place, ScanFinding
from rlverify.scan.unpacking import UnpackBudget, findings_of_content, is_checkpoint
from tests.support.model_files import two_archives


class Payload:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.system, ("exit 3",)


HOSTILE = pickle.dumps(Payload())
HARMLESS = pickle.dumps({"a": [1, 2.5]})
DANGEROUS = "pickle-dangerous-import"


def zipped(members: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def tarred(members: Mapping[str, bytes], last: bytes = b"", kind: int = tarfile.PAX_FORMAT) -> bytes:
    """A tar, whose last member may be given with its header."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=kind) as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        file.write(last)
    return file.getvalue()


def old_tar(name: str, content: bytes, *, mark: bytes = bytes(8), kind: bytes = tarfile.REGTYPE) -> bytes:
    """A tar of one member without an end; without a mark, in the format of before POSIX."""
    member = tarfile.TarInfo(name)
    member.size, member.type = len(content), kind
    header = bytearray(member.tobuf(tarfile.USTAR_FORMAT))
    header[257:265], header[148:156] = mark, b" " * 8
    header[148:155] = b"%06o\0" % sum(header)
    return bytes(header) + content + bytes(-len(content) % 512)


def changed(content: bytes, start: bytes, offset: int, value: int) -> bytes:
    """Change the byte so far behind the first place with this start."""
    place = content.index(start) + offset
    return content[:place] + bytes([value]) + content[place + 1 :]


def saved(value: object, *, is_zip: bool = True) -> bytes:
    file = io.BytesIO()
    torch.save(value, file, _use_new_zipfile_serialization=is_zip)
    return file.getvalue()


def array(value: object) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([value], dtype=object), allow_pickle=True)
    return file.getvalue()


def array_of(kind: str) -> bytes:
    """A file whose array has a kind as it is written, and which goes on like a hostile pickle."""
    header = f"{{'descr': {kind}, 'fortran_order': False, 'shape': (1,)}}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + HOSTILE


def arrays(**values: object) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **{name: np.array([value], dtype=object) for name, value in values.items()})
    return file.getvalue()


def found(content: bytes, budget: UnpackBudget | None = None) -> list[ScanFinding]:
    return list(findings_of_content(io.BytesIO(content), Place("x.pt"), budget))


def places(content: bytes) -> list[tuple[str, str]]:
    return [(each.rule, each.field) for each in found(content)]


PADDING = bytes(2 * 512)
FILES: dict[str, tuple[bytes, str]] = {
    "pickle": (HOSTILE, ""),
    "second pickle": (HARMLESS + HOSTILE, ""),
    "torch": (saved({"w": torch.ones(2), "x": Payload()}), "archive/data.pkl"),
    "torch, old format": (saved({"w": torch.ones(2), "x": Payload()}, is_zip=False), ""),
    "torch, oldest format": (tarred({"pickle": HOSTILE, "tensors": b"\1", "storages": b"\1"}), "pickle"),
    "torch in a zip": (zipped({"policy.pth": saved(Payload())}), "policy.pth/archive/data.pkl"),
    "torch in gzip": (gzip.compress(saved(Payload())), "archive/data.pkl"),
    "array": (array(Payload()), ""),
    "arrays": (arrays(a=1, b=Payload()), "b.npy"),
    "array of a kind with another name": (array_of("'object'"), ""),
    "array of a kind that is escaped": (array_of(r"'|\x4f'"), ""),
    "array of records": (array_of("[('a', 'object')]"), ""),
    "array among tensor data": (zipped({"data.pkl": HARMLESS, "data/0": array_of("'O'")}), "data/0"),
    "gzip": (gzip.compress(HOSTILE), ""),
    "bz2": (bz2.compress(HOSTILE), ""),
    "xz": (lzma.compress(HOSTILE), ""),
    "lzma": (lzma.compress(HOSTILE, lzma.FORMAT_ALONE), ""),
    "zlib": (zlib.compress(HOSTILE), ""),
    "zlib, fast": (zlib.compress(HOSTILE, 1), ""),
    "zlib, best": (zlib.compress(HOSTILE, 9), ""),
    "zip": (zipped({"x.pkl": HOSTILE}, zipfile.ZIP_DEFLATED), "x.pkl"),
    "member without suffix": (zipped({"x": HOSTILE}), "x"),
    "member of an old protocol": (zipped({"x.pkl": b"cposix\nsystem\n)R."}), "x.pkl"),
    "zip in a zip": (zipped({"a.zip": zipped({"b.zip": zipped({"c.pkl": HOSTILE})})}), "a.zip/b.zip/c.pkl"),
    "gzip in a zip": (zipped({"x.gz": gzip.compress(HOSTILE)}), "x.gz"),
    "tar in gzip": (gzip.compress(tarred({"x.pkl": HOSTILE})), "x.pkl"),
    "tar of the oldest format": (old_tar("x.pkl", HOSTILE) + PADDING, "x.pkl"),
    "tar with a member of an unknown type": (tarred({"x": b""}, last=old_tar("x.pkl", HOSTILE, kind=b"Z")), "x.pkl"),
    "zip behind other bytes in a zip": (zipped({"x.bin": b"x" * 600 + zipped({"x.pkl": HOSTILE})}), "x.bin/x.pkl"),
    "zip behind other bytes in zips": (
        zipped({"a.zip": zipped({"b": b"x" * 2**19 + zipped({"c.pkl": HOSTILE, "d": bytes(2**20)})}, 8)}, 8),
        "a.zip/b/c.pkl",
    ),
    "zip behind other bytes in a tar": (
        tarred({"x.bin": b"x" + zipped({"x.pkl": HOSTILE}), "y": bytes(2**17)}),
        "x.bin/x.pkl",
    ),
    "zip behind other bytes": (b"#!/bin/sh\n" + zipped({"x.pkl": HOSTILE}), "x.pkl"),
    "pickle before a zip": (HOSTILE + zipped({"x.txt": b""}), ""),
    "old pickle without suffix in a zip": (zipped({"x": b"cposix\nsystem\n)R."}), "x"),
    "pickle behind the first bytes of a member": (zipped({"x": b"N0" * 300 + b"cposix\nsystem\n)R."}), "x"),
    "tensor data without a pickle next to it": (zipped({"other/data/0": HOSTILE}), "other/data/0"),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_pickle_is_found(kind: str) -> None:
    content, field = FILES[kind]
    assert places(content) == [(DANGEROUS, field)]


@pytest.mark.parametrize("kind", [kind for kind in FILES if "tensor data" not in kind])
def test_a_file_of_each_kind_is_taken_for_a_checkpoint_by_its_first_bytes(kind: str) -> None:
    content = FILES[kind][0]
    if kind != "zip behind other bytes":
        assert is_checkpoint("x", content[:512])


SAFE = {
    "pickle": HARMLESS,
    "pickles": HARMLESS * 3,
    "pickle and other bytes": HARMLESS + b"\x80\x02\x00\x00more",
    "torch": saved({"w": torch.ones(2)}),
    "torch, old format": saved({"w": torch.ones(2)}, is_zip=False),
    "640 numbers in the old format of torch": saved(torch.ones(640), is_zip=False),
    "array of objects": array({"a": 1}),
    "array named O": zipped({"x.npy": array_of("[('O', '<f8')]")}),
    "zip": zipped({"readme.txt": b"cats and dogs\nare here\n)R.", "code.py": b"import os"}),
    **{
        f"tar of format {kind}": tarred({"x" * 80 + "/" + "y" * 80: b"x", "z.pkl": HARMLESS}, kind=kind) + bytes(2**16)
        for kind in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
    },
    "tar of the oldest format": old_tar("x", b"x") + old_tar("y.pkl", HARMLESS) + PADDING,
    "tar without an end": old_tar("y.pkl", HARMLESS, mark=b"ustar\00000"),
    "lzma": lzma.compress(HARMLESS, lzma.FORMAT_ALONE),
    "start of a zip in a member": zipped({"x": b"x" + zipped({"x.txt": b"x"})[:-30]}),
    "tensor data that looks like a pickle": zipped({"a/data.pkl": HARMLESS, "a/data/0": HOSTILE}),
}


@pytest.mark.parametrize("kind", SAFE)
def test_a_harmless_file_gives_no_findings(kind: str) -> None:
    assert found(SAFE[kind]) == []


def test_all_pickles_of_the_old_format_of_torch_are_read() -> None:
    """They may be of any protocol, and the last one, without an end, still calls what precedes the damage."""
    magic = pickle.dumps(0x1950A86A20F9469CFC6C, 0)
    assert places(magic + pickle.dumps(1001, 0) + pickle.dumps({}, 0) + b"cposix\nsystem\n)R") == [(DANGEROUS, "")]
    assert places(pickle.dumps([1], 0) + b"cposix\nsystem\n)R") == [(DANGEROUS, "")]


def test_what_follows_a_pickle_and_is_none_gives_no_findings() -> None:
    for rest in (b"cposix\nsystem\n", b"cno-such\nmodule!\n)R.", b"configuration\nof all\nN0."):
        assert places(HARMLESS + rest) == []


def test_an_import_without_a_module_behind_a_call_does_not_undo_it() -> None:
    assert places(HARMLESS + b"cposix\nsystem\n)R0cno-such\nmodule!\n.") == [(DANGEROUS, "")]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "ends before its pickle does"),
        (b"no pickle", "no pickle instruction"),
        (HARMLESS[:-1], "ends before its pickle does"),
        (zipped({"x.pkl": HARMLESS})[:-30], "cannot be read"),
        (gzip.compress(HARMLESS * 10)[:-12], "cannot be read"),
        (bz2.compress(HARMLESS)[:-4], "cannot be read"),
        (lzma.compress(HARMLESS)[:-4], "cannot be read"),
        (zlib.compress(HARMLESS)[:-6], "cannot be read"),
        (b"\x1f\x8bdamaged", "cannot be read"),
        (array({"a": 1})[:-1], "ends before its pickle does"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "reading array header, expected 4294967295 bytes"),
        (tarred({"x.pkl": HARMLESS})[:512] + b"x" * 512, "ends before|no pickle instruction|cannot be read"),
    ],
    ids=["empty", "text", "pickle", "zip", "gzip", "bz2", "xz", "zlib", "no gzip", "array", "header", "tar"],
)
def test_a_damaged_file_is_one_finding(content: bytes, reason: str) -> None:
    (finding,) = found(content)
    assert (finding.severity, finding.field in ("", "x.pkl")) == ("warning", True)
    assert any(part in finding.message for part in reason.split("|"))


def test_what_precedes_the_damage_of_a_compressed_file_is_reported() -> None:
    packed = gzip.compress(HOSTILE + os.urandom(10_000))
    assert places(packed[:-2000]) == [(DANGEROUS, ""), ("unreadable-file", "")]


TORCH = zipped({"archive/data.pkl": HOSTILE, "archive/version": b"3"})
LARGE = zipped({"archive/data.pkl": HOSTILE + b"x" * 2**21, "archive/version": b"3"})
DIRECTORY, DATA = b"PK\1\2", "archive/data.pkl"
BEFORE_POSIX, HEADER = old_tar("a", b"a"), old_tar("x.pkl", HOSTILE)
NO_ZIP = bytes(46) + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, 46, 0, 0)
MISFITS: dict[str, tuple[bytes, str, str]] = {
    "checksum": (changed(TORCH, DIRECTORY, 16, 0), DATA, DATA),
    "checksum of a large member": (changed(LARGE, DIRECTORY, 16, 0), DATA, DATA),
    "name": (changed(TORCH, DATA.encode(), 0, ord("x")), DATA, DATA),
    "name that is no text": (changed(changed(TORCH, b"PK", 7, 8), DATA.encode(), 0, 0xFF), DATA, DATA),
    "mark of encryption": (changed(TORCH, DIRECTORY, 8, 1), DATA, DATA),
    "mark of a patch": (changed(TORCH, DIRECTORY, 8, 32), DATA, DATA),
    "header in a tar": (BEFORE_POSIX + b"x" * 512 + HEADER + PADDING, "x.pkl", ""),
    "first header in a tar": (b"x" * 257 + b"ustar" + bytes(250) + HEADER + PADDING, "x.pkl", ""),
    "tar behind a tar": (BEFORE_POSIX + PADDING + HEADER, "x.pkl", ""),
    "no zip at the end of a tar": (HEADER + PADDING + NO_ZIP, "x.pkl", ""),
    "no zip at the end of a pickle": (HOSTILE + NO_ZIP, "", ""),
}
"""What only some readers refuse, and where the pickle and the damage are: torch executes the first four."""


@pytest.mark.parametrize("kind", MISFITS)
def test_what_only_some_readers_refuse_is_scanned_and_reported(kind: str) -> None:
    content, pickled, damaged = MISFITS[kind]
    assert set(places(content)) == {(DANGEROUS, pickled), ("unreadable-file", damaged)}


@pytest.mark.parametrize("kind", ["checksum", "checksum of a large member", "name", "name that is no text"])
def test_torch_reads_what_others_refuse(kind: str) -> None:
    assert torch_reads(MISFITS[kind][0]).startswith(HOSTILE)


def with_end_record_64(distance: int) -> bytes:
    """An archive with end records of 64 bits, of which one is said to be so many bytes before the place where it is."""
    content = zipped({"x.txt": b"x"})
    start = int.from_bytes(content[-6:-2], "little")
    end = len(content) - 22
    record = struct.pack("<4sQ4s2L4Q", b"PK\6\6", 44, b"-\0-\0", 0, 0, 1, 1, end - start, start)
    return content[:end] + record + struct.pack("<4sLQL", b"PK\6\7", 0, end - distance, 1) + content[end:]


def test_an_archive_in_which_torch_finds_another_one_is_reported() -> None:
    pickles = HOSTILE, pickle.dumps("x" * 100)
    content = two_archives(*(zipped({"archive/data.pkl": each, "archive/version": b"3"}) for each in pickles))
    assert torch_reads(content) == HOSTILE
    (finding,) = found(content)
    assert (finding.rule, "other readers may find other members" in finding.message) == ("unreadable-file", True)
    assert [places(with_end_record_64(each)) for each in (0, 1)] == [[], [("unreadable-file", "")]]


def torch_reads(content: bytes) -> bytes:
    """The pickle that torch.load would read."""
    reader = torch._C.PyTorchFileReader(io.BytesIO(content))
    return bytes(reader.get_record("data.pkl"))


def test_an_encrypted_member_is_one_finding_and_the_others_are_scanned() -> None:
    content = bytearray(zipped({"a.pkl": HARMLESS, "b.pkl": HOSTILE}))
    for place in (6, content.find(b"PK\x01\x02") + 8):
        content[place] |= 1
    assert places(bytes(content)) == [("unreadable-file", "a.pkl"), (DANGEROUS, "b.pkl")]


def test_a_zip_bomb_is_unpacked_up_to_the_limit() -> None:
    bomb = zipped({"x.pkl": HOSTILE + bytes(2**22), "y.pkl": HOSTILE}, zipfile.ZIP_DEFLATED)
    findings = found(bomb, UnpackBudget(member_bytes=2**20))
    assert [(each.rule, each.field) for each in findings] == [
        (DANGEROUS, "x.pkl"),
        ("scan-limit", "x.pkl"),
        (DANGEROUS, "y.pkl"),
    ]
    assert "the rest was not scanned" in findings[1].message


def test_what_precedes_the_limit_is_scanned_in_a_small_member_too() -> None:
    findings = found(zipped({"x.pkl": HOSTILE + bytes(1000)}), UnpackBudget(member_bytes=500))
    assert [each.rule for each in findings] == [DANGEROUS, "scan-limit"]


def test_all_members_together_are_unpacked_up_to_a_limit() -> None:
    members = {f"{number}.pkl": HARMLESS + bytes(2**20) for number in range(5)}
    budget = UnpackBudget(member_bytes=2**21, total_bytes=3 * 2**20)
    findings = found(zipped(members, zipfile.ZIP_DEFLATED), budget)
    assert [(each.rule, each.field) for each in findings] == [
        ("scan-limit", "2.pkl"),
        ("scan-limit", "3.pkl"),
        ("scan-limit", "4.pkl"),
    ]
    assert budget.left == 0


def test_a_member_of_just_the_limit_is_scanned() -> None:
    content = zipped({"x.pkl": HARMLESS})
    assert found(content, UnpackBudget(len(HARMLESS), len(HARMLESS))) == []
    assert [each.rule for each in found(content, UnpackBudget(len(HARMLESS) - 1))] == ["scan-limit"]


def test_the_limit_of_one_member_is_that_of_the_message() -> None:
    packer = zlib.compressobj(1)
    block = bytes(2**24)
    packed = b"".join(packer.compress(block) for _ in range(17)) + packer.flush()
    (finding,) = found(packed)
    assert (finding.rule, "256 MiB in one member" in finding.message) == ("scan-limit", True)


def test_archives_in_archives_are_opened_up_to_a_limit() -> None:
    content = HOSTILE
    for _ in range(unpacking.MAX_DEPTH + 1):
        content = zipped({"x.zip": content})
    (finding,) = found(content)
    assert finding.rule == "scan-limit"
    assert found(zipped({"x.zip": content}))[0].rule == "scan-limit"


def test_both_members_of_one_name_are_scanned() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x.pkl", HOSTILE)
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("x.pkl", HARMLESS)
    assert places(file.getvalue()) == [(DANGEROUS, "x.pkl")]


def test_names_of_members_are_printable() -> None:
    ((_, field),) = places(zipped({"\x1b[31mü.pkl": HOSTILE}))
    assert field == "\\x1b[31m\\xfc.pkl"


def test_a_file_is_read_in_pieces() -> None:
    """A large plain file costs no memory: long texts are skipped."""

    class Pieces(io.BytesIO):
        largest = 0

        def read(self, size: int | None = -1, /) -> bytes:
            self.largest = max(self.largest, -1 if size is None else size)
            return super().read(size)

    file = Pieces(pickle.dumps([bytes(2**24), Payload()]))
    findings = list(findings_of_content(file, Place("x.pkl")))
    assert [each.rule for each in findings] == [DANGEROUS]
    assert file.largest <= MEBIBYTE


NAMES = ["a.pkl", "a.PT", "a.pth", "b.ckpt", "c.joblib", "d.npz", "e.npy", "f.pickle", "g.dill"]


@pytest.mark.parametrize("name", NAMES)
def test_checkpoints_are_known_by_their_suffix(name: str) -> None:
    assert is_checkpoint(name, b"")


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("a.txt", b"text"),
        ("a.png", b"\x89PNG"),
        ("a", b""),
        ("a.bin", b"\x80"),
        ("a.bin", b"\x80\x09N"),
        ("a.bin", b"\x80\x02\x00"),
    ],
)
def test_other_files_are_no_checkpoints(name: str, head: bytes) -> None:
    assert not is_checkpoint(name, head)


SYSTEM = b"cos\nsystem\n(S'true'\ntR."


def test_a_pickle_before_an_archive_or_under_the_header_of_one_is_scanned() -> None:
    header = tarfile.TarInfo("x").tobuf()
    text = b"X" + len(header).to_bytes(4, "little")
    for content in (SYSTEM + zipped({"x.txt": b"x"}), text[:5] + header + b"0" + SYSTEM):
        assert DANGEROUS in {each.rule for each in found(content)}


def test_every_pickle_of_a_stream_is_read_and_an_import_reported_once() -> None:
    assert places(b"N." * 1000 + SYSTEM * 2) == [(DANGEROUS, "")]
