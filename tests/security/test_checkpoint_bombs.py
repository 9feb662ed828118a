"""A small file cannot cost much memory or time, and no tensor in it is anything but what its bytes say."""

from __future__ import annotations

import io
import re
import struct
import sys
import warnings
import zipfile
from typing import Any

import pytest
import torch

from rlcore.checkpoint import load_container, torch_file
from rlcore.checkpoint.torch_file import MAX_PICKLE_BYTES
from rlcore.errors import CheckpointError

GIANT = 10**12


def refused(source: io.BytesIO, said: str) -> None:
    with pytest.raises(CheckpointError, match=said):
        load_container(source)


def test_the_forged_file_without_changes_loads(forge: Any) -> None:
    """Without this the refusals below might be about the forging."""
    parts = {"x": forge.tensor(), "later": forge.tensor(size=(2,), offset=1), "n": forge.literal(5)}
    with pytest.warns(UserWarning, match="no digest"):
        payload = load_container(forge.file(forge.dictionary(**parts)))
    assert payload["x"].tolist() == [1.0, 2.0, 3.0, 4.0]  # type: ignore[union-attr]
    assert payload["later"].tolist() == [2.0, 3.0]  # type: ignore[union-attr]
    assert payload["n"] == 5


SHAPES: list[tuple[str, dict[str, Any], str]] = [
    ("storage larger than its record", {"numel": GIANT}, "is not the 1000000000000 elements"),
    ("storage smaller than its record", {"numel": 3}, "is not the 3 elements"),
    ("storage of negative length", {"numel": -4}, "is not the -4 elements"),
    ("tensor larger than its storage", {"size": (GIANT,)}, r"shape \(1000000000000,\) claims more than the 4 elements"),
    ("tensor beyond the end", {"offset": 1}, "claims more than the 4 elements"),
    ("tensor before the start", {"offset": -1}, "pickle is damaged"),
    ("one element repeated", {"size": (GIANT,), "stride": (0,)}, "claims more than the 4 elements"),
    ("one of four repeated", {"size": (4,), "stride": (0,)}, "not contiguous"),
    ("a stride that leaves the storage", {"size": (2, 2), "stride": (GIANT, 1)}, "not contiguous"),
    ("transposed", {"size": (2, 2), "stride": (1, 2)}, r"shape \(2, 2\) is not contiguous"),
    ("negative size", {"size": (-4,)}, "pickle is damaged"),
    ("sizes without strides", {"size": (2, 2), "stride": (1,)}, "pickle is damaged"),
    ("too many dimensions", {"size": (1,) * 65, "stride": (1,) * 65}, "pickle is damaged"),
    ("integers beyond the machine's", {"size": (2**70,), "stride": (1,)}, "pickle is damaged"),
    ("a stride beyond the machine's", {"size": (1,), "stride": (2**63,)}, "pickle is damaged"),
    ("a record that is not there", {"key": "1"}, "'1' is not the 4 elements"),
    ("another element type", {"kind": "torch\nDoubleStorage"}, "is not the 4 elements of torch.float64"),
    ("a storage of another record", {"key": "../version"}, "is not the 4 elements"),
    ("quantized", {"kind": "torch\nQInt32Storage"}, "refers to"),
]


@pytest.mark.parametrize(("changes", "said"), [shape[1:] for shape in SHAPES], ids=[shape[0] for shape in SHAPES])
@pytest.mark.usefixtures("torch_sees_nothing")
def test_a_tensor_is_no_more_than_its_bytes(changes: dict[str, Any], said: str, forge: Any) -> None:
    refused(forge.file(forge.dictionary(x=forge.tensor(**changes))), said)


def test_a_record_of_no_bytes_has_no_elements(forge: Any) -> None:
    empty = {size: forge.file(forge.dictionary(x=forge.tensor(size=(size,), numel=0)), {"0": b""}) for size in (0, 1)}
    with pytest.warns(UserWarning, match="no digest"):
        assert load_container(empty[0])["x"].tolist() == []  # type: ignore[union-attr]
    refused(empty[1], r"shape \(1,\) claims more than the 0 elements")


@pytest.mark.usefixtures("torch_sees_nothing")
def test_a_tensor_is_a_tensor_wherever_it_stands(forge: Any) -> None:
    """A tuple may hold plain values, of which it is none."""
    refused(forge.file(forge.dictionary(x=b"(" + forge.tensor() + b"t")), r"payload\['x'\].*tuple")


def test_an_empty_tensor_may_have_long_sides_but_none_that_overflow(forge: Any) -> None:
    tensor = forge.tensor(size=(0, GIANT), stride=(GIANT, 1))
    with pytest.warns(UserWarning, match="no digest"):
        assert load_container(forge.file(forge.dictionary(x=tensor)))["x"].numel() == 0  # type: ignore[union-attr]
    for length in (2, 2**62):
        overflowing = forge.tensor(size=(0, 2**62, length), stride=(1, 1, 1))
        refused(forge.file(forge.dictionary(x=overflowing)), "pickle is damaged")


@pytest.mark.usefixtures("torch_sees_nothing")
def test_a_giant_that_is_overwritten_or_hidden_is_found(forge: Any) -> None:
    giant, small = forge.tensor(size=(GIANT,), stride=(0,)), forge.tensor()
    twice = b"\x80\x02}(" + forge.text("x") + small + forge.text("x") + small + b"u."
    refused(forge.file(twice), "pickle is damaged")
    refused(forge.file(forge.dictionary(x=b"(" + giant + b"t")), "claims more")
    hooks_filled_later = small[:-2].replace(b")R", b")Rq\x00") + b"tRh\x00" + forge.text("x") + giant + b"s"
    refused(forge.file(forge.dictionary(x=hooks_filled_later)), "claims more")


@pytest.mark.usefixtures("torch_sees_nothing")
@pytest.mark.parametrize(
    ("healthy", "changed"),
    [
        (b"\x89ccoll", b"\x88ccoll"),
        (b"\x89ccoll", b"K\x00ccoll"),
        (b")RtR", b")R}K\x01Nsb" + b"tR"),
        (b")RtR", b")RK\x01NstR"),
    ],
    ids=["requires a gradient", "an integer for False", "hooks with attributes", "hooks"],
)
def test_a_tensor_carries_neither_gradient_nor_hooks(healthy: bytes, changed: bytes, forge: Any) -> None:
    tensor = forge.tensor()
    assert healthy in tensor
    refused(forge.file(forge.dictionary(x=tensor.replace(healthy, changed))), "pickle is damaged")


CLAIMS = {
    "a type in place of the function": (b"ctorch._utils\n_rebuild_tensor_v2\n", b"ctorch\nFloatStorage\n"),
    "arguments in a list": (b"_v2\n(", b"_v2\n]("),
    "a claim in place of a storage": (b"Q\x8a\x01\x00", b"\x8a\x01\x00"),
    "a flag as offset": (b"Q\x8a\x01\x00", b"Q\x89"),
    "another kind of claim": (b"\x07\x00\x00\x00storage", b"\x05\x00\x00\x00thing"),
    "a text as type": (b"ctorch\nFloatStorage\n", b"X\x03\x00\x00\x00cpu"),
    "the function as type": (b"ctorch\nFloatStorage\n", b"ccollections\nOrderedDict\n"),
    "a number as key": (b"X\x01\x00\x00\x000", b"K\x00"),
    "no location": (b"X\x03\x00\x00\x00cpu", b"N"),
    "a fraction as length": (b"\x8a\x01\x04tQ", b"G\x40\x10\x00\x00\x00\x00\x00\x00tQ"),
}


@pytest.mark.usefixtures("torch_sees_nothing")
@pytest.mark.parametrize(("healthy", "changed"), CLAIMS.values(), ids=CLAIMS)
def test_what_a_tensor_is_made_of_has_the_types_that_torch_writes(healthy: bytes, changed: bytes, forge: Any) -> None:
    tensor = forge.tensor()
    assert tensor.count(healthy) == 1
    claim = tensor.replace(healthy, changed)
    refused(forge.file(forge.dictionary(x=claim[:-2] + b"eR" if b"](" in claim else claim)), "pickle is damaged")


@pytest.mark.usefixtures("torch_sees_nothing")
def test_one_record_cannot_be_two_types(forge: Any) -> None:
    pickled = forge.dictionary(x=forge.tensor(), y=forge.tensor(kind="torch\nIntStorage"))
    refused(forge.file(pickled), "elements of torch.int32")


@pytest.mark.usefixtures("torch_sees_nothing")
def test_a_record_that_belongs_to_no_tensor_is_refused(forge: Any) -> None:
    refused(forge.file(forge.dictionary(n=b"N")), "'data/0' belongs to no tensor")


@pytest.mark.usefixtures("torch_sees_nothing")
def test_a_bytearray_bomb_is_refused(forge: Any) -> None:
    bomb = b"c__builtin__\nbytearray\n" + forge.integer(3 * 2**30) + b"\x85R"
    refused(forge.file(forge.dictionary(x=bomb), {}), "refers to '__builtin__ bytearray'")


@pytest.mark.usefixtures("torch_sees_nothing")
def test_sparse_tensors_are_refused() -> None:
    file = io.BytesIO()
    torch.save({"x": torch.ones(3).to_sparse()}, file)
    file.seek(0)
    refused(file, "refers to 'torch._utils _rebuild_sparse_tensor'")


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
    refused(file, "its record 'data.pkl' is there twice")


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
    refused(forge.archive(records.items()), "'data.pkl' or 'version' is missing")


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
    refused(io.BytesIO(bytes(content)), r"its record 'data/[01]' is there twice, overlaps another")


@pytest.mark.usefixtures("torch_sees_nothing")
def test_a_record_cannot_lie_within_the_data_of_another(forge: Any) -> None:
    pickled = forge.dictionary(x=forge.tensor(size=(15,), numel=15), y=forge.tensor(key="1"))
    content = forge.file(pickled, {"0": bytes(60), "1": bytes(16)}).getvalue()
    second = content.find(b"archive/data/1") - 30
    forged = bytearray(forge.file(pickled, {"0": content[second : second + 60], "1": bytes(16)}).getvalue())
    struct.pack_into("<L", forged, forged.rfind(b"archive/data/1") - 4, forged.find(b"archive/data/1") - 30)
    refused(io.BytesIO(bytes(forged)), "its record 'data/1' is there twice, overlaps another")


DIRECTORY_LIES = {
    "encrypted": (8, struct.pack("<H", 1), "is compressed or encrypted"),
    "with another flag": (8, struct.pack("<H", 0x800), "has a foreign header"),
}


@pytest.mark.parametrize(("place", "value", "said"), DIRECTORY_LIES.values(), ids=DIRECTORY_LIES)
@pytest.mark.usefixtures("torch_sees_nothing")
def test_the_directory_says_of_a_record_what_its_header_says(place: int, value: bytes, said: str, forge: Any) -> None:
    content = bytearray(forge.file(forge.dictionary(x=forge.tensor())).getvalue())
    entry = content.rfind(b"archive/data/0") - 46
    content[entry + place : entry + place + len(value)] = value
    refused(io.BytesIO(bytes(content)), said)


@pytest.mark.parametrize(("from_end", "said"), [(30, "has a foreign header"), (29, "directory is damaged$")])
@pytest.mark.usefixtures("torch_sees_nothing")
def test_a_header_at_the_end_of_the_file_is_read_only_if_it_is_all_there(from_end: int, said: str, forge: Any) -> None:
    content = bytearray(forge.file(forge.dictionary(x=forge.tensor())).getvalue())
    struct.pack_into("<L", content, content.rfind(b"archive/data/0") - 4, len(content) - from_end)
    refused(io.BytesIO(bytes(content)), said)


@pytest.mark.parametrize("additions", [("extra",), ("comment",), ("extra", "comment")], ids=" and ".join)
@pytest.mark.usefixtures("torch_sees_nothing")
def test_a_record_carries_nothing_but_its_data(additions: tuple[str, ...], forge: Any) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as forged:
        for name, data in {"data.pkl": forge.dictionary(n=b"N"), "version": b"3\n"}.items():
            record = zipfile.ZipInfo(f"archive/{name}")
            for addition in additions:
                setattr(record, addition, b"\x01\x00\x00\x00" if name == "version" else b"")
            forged.writestr(record, data)
    file.seek(0)
    refused(file, "its record 'archive/version' is compressed or encrypted, or carries additions")


@pytest.mark.usefixtures("torch_sees_nothing")
def test_a_file_of_stable_baselines_is_named_with_what_loads_it() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data", b"{}")
    file.seek(0)
    refused(file, r"is a file of Stable-Baselines3's save\(\).*RecurrentPPO\.load")


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


def test_a_tensor_that_does_not_lie_where_its_type_needs_it_is_copied(forge: Any) -> None:
    """A zip file of another writer puts records anywhere."""
    with pytest.warns(UserWarning, match="no digest"):
        found = [
            load_container(forge.file(forge.dictionary(x=forge.tensor()), **{".data/serialization_id": b"1" * n}))
            for n in range(1, 5)
        ]
    assert all(each["x"].data_ptr() % 4 == 0 for each in found)  # type: ignore[union-attr]
    assert all(each["x"].tolist() == [1.0, 2.0, 3.0, 4.0] for each in found)  # type: ignore[union-attr]


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
    refused(io.BytesIO(content[:end] + b"x" * 76 + content[end:]), "its zip directory is damaged$")


def test_a_directory_has_as_many_bytes_as_are_read_and_no_more(forge: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    content = forge.file(forge.dictionary(n=b"N"), {}).getvalue()
    (size,) = struct.unpack_from("<L", content, len(content) - 10)
    monkeypatch.setattr(torch_file, "MAX_DIRECTORY_BYTES", size)
    with pytest.warns(UserWarning, match="no digest"):
        load_container(io.BytesIO(content))
    monkeypatch.setattr(torch_file, "MAX_DIRECTORY_BYTES", size - 1)
    refused(io.BytesIO(content), "its zip directory is damaged$")


@pytest.mark.parametrize(
    ("place", "said"),
    [(28, "its zip directory is damaged$"), (30, "carries additions"), (32, "carries additions")],
    ids=["name", "extra field", "comment"],
)
@pytest.mark.usefixtures("torch_sees_nothing")
def test_an_entry_that_goes_on_beyond_the_directory_is_refused(place: int, said: str, forge: Any) -> None:
    content = bytearray(forge.file(forge.dictionary(n=b"N"), {}).getvalue())
    struct.pack_into("<H", content, content.rfind(b"PK\x01\x02") + place, 99)
    refused(io.BytesIO(bytes(content)), said)


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


@pytest.mark.usefixtures("torch_sees_nothing")
def test_values_that_share_a_list_or_hold_themselves_are_refused(forge: Any) -> None:
    doubling = b"]q\x00" + b"".join(
        b"]" + b"h" + bytes([i]) + b"ah" + bytes([i]) + b"a" + b"q" + bytes([i + 1]) for i in range(60)
    )
    refused(forge.file(forge.dictionary(x=b"(" + doubling + b"t"), {}), "tuple that holds")
    refused(forge.file(forge.dictionary(x=b"]q\x00h\x00a"), {}), "is in two places")
    refused(forge.file(forge.dictionary(x=b"]q\x00", y=b"h\x00"), {}), "is in two places")


@pytest.mark.usefixtures("torch_sees_nothing")
def test_deep_nesting_is_refused_without_recursion(forge: Any) -> None:
    depth = 200_000
    refused(forge.file(forge.dictionary(x=b"]" * 5_000 + b"a" * 4_999), {}), "deeper than 64")
    deep_tuple = b")" + b"\x85" * depth
    refused(forge.file(forge.dictionary(x=deep_tuple), {}), "tuple that holds a tuple")
    refused(forge.file(b"\x80\x02}(" + deep_tuple + b"Nu.", {}), "pickle is damaged")  # as a key, where it is hashed


@pytest.mark.usefixtures("torch_sees_nothing")
def test_a_memo_index_cannot_claim_a_giant_table(forge: Any) -> None:
    refused(forge.file(forge.dictionary(x=b"Nr\xff\xff\xff\x7f"), {}), "pickle is damaged")


@pytest.mark.usefixtures("torch_sees_nothing")
def test_a_long_global_name_is_refused_before_torch_searches_it(forge: Any) -> None:
    pickled = forge.dictionary(x=b"c" + b"a." * (MAX_PICKLE_BYTES // 4) + b"\nx\n")
    refused(forge.file(pickled, {}), "refers to")


@pytest.mark.usefixtures("torch_sees_nothing")
def test_a_giant_pickle_is_refused(forge: Any) -> None:
    refused(forge.file(forge.dictionary(x=forge.text("a" * MAX_PICKLE_BYTES)), {}), "at most 8388608 are read")


@pytest.mark.parametrize(
    "pickled", [b"", b"\x80\x02", b"\x80\x02.", b"\x80\x02}}.", b"\x80\x02}.}", b"\x80\x02(}.", b"\x80\x02u."]
)
@pytest.mark.usefixtures("torch_sees_nothing")
def test_a_malformed_pickle_is_refused(pickled: bytes, forge: Any) -> None:
    refused(forge.file(pickled, {}), "pickle is damaged")


@pytest.mark.usefixtures("torch_sees_nothing")
def test_a_key_without_a_value_is_refused(forge: Any) -> None:
    refused(forge.file(b"\x80\x02}(" + forge.text("a") + b"N" + forge.text("b") + b"u.", {}), "pickle is damaged")


def test_a_pickle_has_as_many_bytes_as_are_read_and_no_more(forge: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pickled = forge.dictionary(n=b"N")
    monkeypatch.setattr(torch_file, "MAX_PICKLE_BYTES", len(pickled))
    with pytest.warns(UserWarning, match="no digest"):
        assert load_container(forge.file(pickled, {})) == {"n": None}
    monkeypatch.setattr(torch_file, "MAX_PICKLE_BYTES", len(pickled) - 1)
    refused(forge.file(pickled, {}), f"has {len(pickled)} bytes; at most {len(pickled) - 1} are read")


@pytest.mark.parametrize(("pickled", "kind"), [(b"\x80\x02].", "list"), (b"\x80\x02K\x01.", "int")])
def test_a_value_that_is_no_dict_is_refused(pickled: bytes, kind: str, forge: Any) -> None:
    refused(forge.file(pickled, {}), f"holds a {kind}, not a dict")
