"""The zip around a checkpoint holds what torch writes, once, uncompressed and in one place, or it is not read."""

from __future__ import annotations

import io
import re
import struct
import sys
import warnings
import zipfile
from typing import Any

import pytest

from rlcore.checkpoint import archive, load_container
from rlcore.errors import CheckpointError
from tests.security.refusals import refused


@pytest.mark.usefixtures("torch_sees_nothing")
def test_a_deflated_bomb_is_refused(forge: Any) -> None:
    pickled = forge.dictionary(x=forge.tensor(size=(2**22,), numel=2**22))
    records = [("data.pkl", pickled), ("version", b"3\n"), ("data/0", bytes(2**24))]
    file = forge.archive(records, zipfile.ZIP_DEFLATED)
    assert len(file.getvalue()) < 2**16
    refused(file, r"its record 'archive/data\.pkl' is compressed")


@pytest.mark.parametrize(("place", "value"), [(10, 8), (20, 17)], ids=["by its method", "by its size"])
@pytest.mark.usefixtures("torch_sees_nothing")
def test_a_record_that_only_the_directory_calls_compressed_is_refused(place: int, value: int, forge: Any) -> None:
    content = bytearray(forge.file(forge.dictionary(x=forge.tensor())).getvalue())
    entry = content.rfind(b"archive/data/0") - 46
    assert content[entry : entry + 4] == b"PK\x01\x02"
    content[entry + place] = value
    refused(io.BytesIO(bytes(content)), "its record 'archive/data/0' is compressed")


@pytest.mark.usefixtures("torch_sees_nothing")
def test_a_swapped_byte_order_is_refused(forge: Any) -> None:
    refused(forge.file(forge.dictionary(x=forge.tensor()), byteorder=b"big"), "'byteorder' holds b'big'")


@pytest.mark.usefixtures("torch_sees_nothing")
def test_a_second_pickle_is_refused(forge: Any) -> None:
    pickled = forge.dictionary(n=b"N")
    records = [("data.pkl", pickled), ("version", b"3\n"), ("data.pkl", pickled)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # zipfile warns while the file is being forged
        file = forge.archive(records)
    refused(file, "the record 'data.pkl' twice")


FOREIGN = [
    "constants.pkl",
    "code/x.py",
    "data/00",
    "data/x",
    "data/../x",
    "DATA.PKL",
    "byteorder/",
    "/data.pkl",
    "policy.pth",
]


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.usefixtures("torch_sees_nothing")
def test_a_foreign_record_is_refused(name: str, forge: Any) -> None:
    refused(forge.file(forge.dictionary(n=b"N"), {}, **{name: b"x"}), f"foreign record {re.escape(ascii(name))};")


@pytest.mark.parametrize("name", ["data.pkl", "version"])
def test_a_missing_record_is_named(name: str, forge: Any) -> None:
    records = {"data.pkl": forge.dictionary(n=b"N"), "version": b"3\n"}
    del records[name]
    refused(forge.archive(records.items()), f"'{name}' is missing")


@pytest.mark.parametrize(("name", "value"), [("version", b"4\n"), ("version", b"3" * 99), (".storage_alignment", b"x")])
def test_a_record_of_torch_with_another_content_is_refused(name: str, value: bytes, forge: Any) -> None:
    refused(forge.file(forge.dictionary(n=b"N"), {}, **{name: value}), f"'{name}' holds")


def test_a_record_of_torch_may_have_64_bytes(forge: Any) -> None:
    with pytest.warns(UserWarning, match="no digest"):
        load_container(forge.file(forge.dictionary(n=b"N"), {}, **{".data/serialization_id": b"1" * 64}))


@pytest.mark.usefixtures("torch_sees_nothing")
def test_a_machine_of_the_other_byte_order_reads_no_weights(forge: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "byteorder", "big")
    refused(forge.file(forge.dictionary(x=forge.tensor())), "this machine is big-endian")


@pytest.mark.usefixtures("torch_sees_nothing")
def test_two_records_cannot_share_bytes(forge: Any) -> None:
    content = bytearray(
        forge.file(
            forge.dictionary(x=forge.tensor(), y=forge.tensor(key="1")), {"0": bytes(16), "1": bytes(16)}
        ).getvalue()
    )
    first, second = content.find(b"archive/data/0") - 30, content.find(b"archive/data/1") - 30
    offset_of_second = content.rfind(b"archive/data/1") - 4
    assert struct.unpack_from("<L", content, offset_of_second) == (second,)
    struct.pack_into("<L", content, offset_of_second, first)
    refused(io.BytesIO(bytes(content)), r"its record 'data/[01]' overlaps")


@pytest.mark.usefixtures("torch_sees_nothing")
def test_a_record_cannot_lie_within_the_data_of_another(forge: Any) -> None:
    pickled = forge.dictionary(x=forge.tensor(size=(15,), numel=15), y=forge.tensor(key="1"))
    content = forge.file(pickled, {"0": bytes(60), "1": bytes(16)}).getvalue()
    second = content.find(b"archive/data/1") - 30
    forged = bytearray(forge.file(pickled, {"0": content[second : second + 60], "1": bytes(16)}).getvalue())
    struct.pack_into("<L", forged, forged.rfind(b"archive/data/1") - 4, forged.find(b"archive/data/1") - 30)
    refused(io.BytesIO(bytes(forged)), "its record 'data/1' overlaps")


DIRECTORY_LIES = {
    "encrypted": (8, struct.pack("<H", 1), "is encrypted"),
    "with another flag": (8, struct.pack("<H", 0x800), "contradicts the zip directory"),
}


@pytest.mark.parametrize(("place", "value", "said"), DIRECTORY_LIES.values(), ids=DIRECTORY_LIES)
@pytest.mark.usefixtures("torch_sees_nothing")
def test_the_directory_says_of_a_record_what_its_header_says(place: int, value: bytes, said: str, forge: Any) -> None:
    content = bytearray(forge.file(forge.dictionary(x=forge.tensor())).getvalue())
    entry = content.rfind(b"archive/data/0") - 46
    content[entry + place : entry + place + len(value)] = value
    refused(io.BytesIO(bytes(content)), said)


@pytest.mark.parametrize(("from_end", "said"), [(30, "contradicts the zip directory"), (29, "lies outside the file")])
@pytest.mark.usefixtures("torch_sees_nothing")
def test_a_header_at_the_end_of_the_file_is_read_only_if_it_is_all_there(from_end: int, said: str, forge: Any) -> None:
    content = bytearray(forge.file(forge.dictionary(x=forge.tensor())).getvalue())
    struct.pack_into("<L", content, content.rfind(b"archive/data/0") - 4, len(content) - from_end)
    refused(io.BytesIO(bytes(content)), f"its record 'archive/data/0' {said}")


@pytest.mark.parametrize("addition", ["extra", "comment"])
@pytest.mark.usefixtures("torch_sees_nothing")
def test_a_record_carries_nothing_but_its_data(addition: str, forge: Any) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as forged:
        for name, data in {"data.pkl": forge.dictionary(n=b"N"), "version": b"3\n"}.items():
            record = zipfile.ZipInfo(f"archive/{name}")
            setattr(record, addition, b"\x01\x00\x00\x00" if name == "version" else b"")
            forged.writestr(record, data)
    file.seek(0)
    refused(file, "its record 'archive/version' is encrypted or carries additions")


@pytest.mark.usefixtures("torch_sees_nothing")
def test_a_record_outside_the_folder_is_named(forge: Any) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as forged:
        forged.writestr("data.pkl", forge.dictionary(n=b"N"))
    file.seek(0)
    refused(file, r"foreign record 'data\.pkl';")


def test_records_may_come_in_any_order(forge: Any) -> None:
    records = {"data/0": bytes(16), "version": b"3\n", "data.pkl": forge.dictionary(x=forge.tensor())}
    with pytest.warns(UserWarning, match="no digest"):
        payload = load_container(forge.archive(records.items()))
    assert payload["x"].tolist() == [0.0] * 4  # type: ignore[union-attr]


@pytest.mark.usefixtures("torch_sees_nothing")
def test_anything_before_after_or_between_is_refused(forge: Any) -> None:
    content = forge.file(forge.dictionary(n=b"N"), {}).getvalue()
    end = content.rfind(b"PK\x05\x06")
    for changed in (b"x" + content, content + b"x", content[:end] + b"x" * 76 + content[end:], content + content):
        with pytest.raises(CheckpointError):
            load_container(io.BytesIO(changed))


@pytest.mark.parametrize("place", [4, 6, 8], ids=["disk", "disk of the directory", "entries on this disk"])
@pytest.mark.usefixtures("torch_sees_nothing")
def test_an_end_record_of_several_disks_is_refused(place: int, forge: Any) -> None:
    content = bytearray(forge.file(forge.dictionary(n=b"N"), {}).getvalue())
    content[content.rfind(b"PK\x05\x06") + place] += 1
    refused(io.BytesIO(bytes(content)), "its zip directory is damaged$")


@pytest.mark.usefixtures("torch_sees_nothing")
def test_a_directory_that_is_none_and_one_with_something_behind_it_are_told_apart(forge: Any) -> None:
    content = forge.file(forge.dictionary(n=b"N"), {}).getvalue()
    end = content.rfind(b"PK\x05\x06")
    refused(io.BytesIO(content.replace(b"PK\x01\x02", b"PK\x01\x03")), "its zip directory is damaged$")
    refused(io.BytesIO(content[:end] + b"x" * 76 + content[end:]), "the end records contradict each other")


def test_a_directory_has_as_many_bytes_as_are_read_and_no_more(forge: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    content = forge.file(forge.dictionary(n=b"N"), {}).getvalue()
    (size,) = struct.unpack_from("<L", content, len(content) - 10)
    monkeypatch.setattr(archive, "_MAX_DIRECTORY_BYTES", size)
    with pytest.warns(UserWarning, match="no digest"):
        load_container(io.BytesIO(content))
    monkeypatch.setattr(archive, "_MAX_DIRECTORY_BYTES", size - 1)
    refused(io.BytesIO(content), "its zip directory is damaged$")


@pytest.mark.usefixtures("torch_sees_nothing")
def test_a_zip_behind_another_file_is_refused(forge: Any) -> None:
    """Its directory is consistent, but torch.load goes by the first bytes and would take it for the legacy stream."""
    file = io.BytesIO(b"\x80\x02}.")
    with zipfile.ZipFile(file, "a") as forged:
        forged.writestr("archive/data.pkl", forge.dictionary(n=b"N"))
        forged.writestr("archive/version", b"3\n")
    file.seek(0)
    refused(file, "zip format")


@pytest.mark.usefixtures("torch_sees_nothing")
def test_a_directory_that_counts_wrongly_is_refused(forge: Any) -> None:
    content = bytearray(forge.file(forge.dictionary(n=b"N"), {}).getvalue())
    assert struct.unpack_from("<2H", content, len(content) - 14) == (3, 3)
    struct.pack_into("<2H", content, len(content) - 14, 2, 2)
    refused(io.BytesIO(bytes(content)), "announces 2 records and lists 3")


@pytest.mark.usefixtures("torch_sees_nothing")
def test_a_foreign_comment_is_refused(forge: Any) -> None:
    file = forge.file(forge.dictionary(n=b"N"), {})
    with zipfile.ZipFile(file, "a") as forged:
        forged.comment = b"x" * 78
    file.seek(0)
    refused(file, "zip comment is damaged, or was not written by this project")
