"""A small file cannot cost much memory or time, and no tensor in it is anything but what its bytes say."""

from __future__ import annotations

import io
import re
import struct
import warnings
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
import torch

from rlcore.checkpoint import torch_file
from rlcore.checkpoint.container import load_container
from rlcore.checkpoint.torch_file import MAX_PICKLE_BYTES
from rlcore.errors import CheckpointError

GIANT = 10**12
DIRECTORY = "its zip directory is damaged$"
PICKLE = "pickle is damaged"
PLACES = "more than 33554432 bytes in all places"
Forge = Any


def refused(source: io.BytesIO, said: str) -> None:
    with pytest.raises(CheckpointError, match=said):
        load_container(source)


def read(source: io.BytesIO) -> Any:
    with pytest.warns(UserWarning, match="no digest"):
        return load_container(source)


def test_what_is_forged_below_loads_without_the_forgery(forge: Forge) -> None:
    parts = {"x": forge.tensor(), "later": forge.tensor(size=(2,), offset=1), "n": forge.literal(5)}
    payload = read(forge.file(forge.dictionary(**parts)))
    assert (payload["x"].tolist(), payload["later"].tolist()) == ([1.0, 2.0, 3.0, 4.0], [2.0, 3.0])
    assert payload["n"] == 5
    long = forge.tensor(size=(0, GIANT), stride=(GIANT, 1))
    assert read(forge.file(forge.dictionary(x=long)))["x"].numel() == 0
    empty = forge.tensor(size=(0,), numel=0)
    assert read(forge.file(forge.dictionary(x=empty), {"0": b""}))["x"].tolist() == []
    any_order = {"data/0": bytes(16), "version": b"3\n", "data.pkl": forge.dictionary(x=forge.tensor())}
    assert read(forge.archive(any_order.items()))["x"].tolist() == [0.0] * 4


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
def test_a_tensor_is_no_more_than_its_bytes(changes: dict[str, Any], said: str, forge: Forge) -> None:
    refused(forge.file(forge.dictionary(x=forge.tensor(**changes))), said)


CLAIMS = {
    "a gradient": (b"\x89ccoll", b"\x88ccoll"),
    "an integer for False": (b"\x89ccoll", b"K\x00ccoll"),
    "hooks with attributes": (b")RtR", b")R}K\x01NsbtR"),
    "hooks": (b")RtR", b")RK\x01NstR"),
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
def test_what_a_tensor_is_made_of_has_the_types_that_torch_writes(healthy: bytes, changed: bytes, forge: Forge) -> None:
    tensor = forge.tensor()
    assert tensor.count(healthy) == 1
    claim = tensor.replace(healthy, changed)
    refused(forge.file(forge.dictionary(x=claim[:-2] + b"eR" if b"](" in claim else claim)), PICKLE)


def two_values(forge: Forge, first: bytes, second: bytes) -> io.BytesIO:
    file: io.BytesIO = forge.file(b"\x80\x02}(" + forge.text("x") + first + forge.text("x") + second + b"u.")
    return file


def hooks_filled_later(forge: Forge) -> bytes:
    giant, small = forge.tensor(size=(GIANT,), stride=(0,)), forge.tensor()
    filled: bytes = small[:-2].replace(b")R", b")Rq\x00") + b"tRh\x00" + forge.text("x") + giant + b"s"
    return filled


DEEP_TUPLE = b")" + b"\x85" * 200_000
DOUBLING = b"]q\x00" + b"".join(
    b"]" + b"h" + bytes([i]) + b"ah" + bytes([i]) + b"a" + b"q" + bytes([i + 1]) for i in range(60)
)
VALUES: dict[str, tuple[Callable[[Forge], bytes], str]] = {
    "a tensor in a tuple": (lambda forge: b"(" + forge.tensor() + b"t", r"payload\['x'\].*tuple"),
    "a giant in a tuple": (lambda forge: b"(" + forge.tensor(size=(GIANT,), stride=(0,)) + b"t", "claims more"),
    "a giant in hooks": (hooks_filled_later, "claims more"),
    "sides that overflow": (lambda forge: forge.tensor(size=(0, 2**62, 2), stride=(1, 1, 1)), PICKLE),
    "an element of no bytes": (lambda forge: forge.tensor(size=(1,), numel=0, key="1"), "claims more than the 0"),
    "a record without tensor": (lambda _: b"N", r"'data/[01]' belongs to no tensor"),
    "a bytearray": (lambda forge: b"c__builtin__\nbytearray\n" + forge.integer(3 * 2**30) + b"\x85R", "refers to"),
    "a long name": (lambda _: b"c" + b"a." * (MAX_PICKLE_BYTES // 4) + b"\nx\n", "refers to"),
    "a giant table": (lambda _: b"Nr\xff\xff\xff\x7f", PICKLE),
    "a giant pickle": (lambda forge: forge.text("a" * MAX_PICKLE_BYTES), "at most 8388608 are read"),
    "lists that double": (lambda _: b"(" + DOUBLING + b"t", "tuple that holds"),
    "a list in itself": (lambda _: b"]q\x00h\x00a", "is in two places"),
    "a list twice": (lambda _: b"](]q\x00h\x00e", "is in two places"),
    "a tensor twice": (lambda forge: b"](" + forge.tensor() + b"q\x00h\x00e", r"\['x'\]\[1\] is in two places"),
    "a text in many places": (lambda forge: b"](" + forge.text("a" * 2**20) + b"q\x00" + b"h\x00" * 32 + b"e", PLACES),
    "a tuple in many places": (lambda _: b"]((" + b"N" * 2**17 + b"tq\x00" + b"h\x00" * 32 + b"e", PLACES),
    "a number in many places": (
        lambda forge: b"](" + forge.integer(2**2000) + b"q\x00" + b"h\x00" * 2**17 + b"e",
        PLACES,
    ),
    "a key in many places": (
        lambda forge: b"](}" + forge.text("k" * 1000) + b"q\x00Ns" + b"}h\x00Ns" * 2**15 + b"e",
        PLACES,
    ),
    "a long key": (lambda forge: b"}" + forge.text("k" * 1001) + b"Ns", "has a key of 1001 characters"),
    "deep lists": (lambda _: b"]" * 5_000 + b"a" * 4_999, "deeper than 64"),
    "deep tuples": (lambda _: DEEP_TUPLE, "tuple that holds a tuple"),
    "a dict with a deep tuple as key": (lambda _: b"}(" + DEEP_TUPLE + b"Nu", PICKLE),
    "a key without a value": (lambda forge: b"}(" + forge.text("a") + b"N" + forge.text("b") + b"u", PICKLE),
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.usefixtures("torch_sees_nothing")
def test_a_value_cannot_cost_more_than_its_bytes(name: str, forge: Forge) -> None:
    value, said = VALUES[name]
    parts = {"x": value(forge)} if "without" in name else {"x": value(forge), "t": forge.tensor()}
    refused(forge.file(forge.dictionary(**parts), {"0": bytes(16), **({"1": b""} if "no bytes" in name else {})}), said)


@pytest.mark.usefixtures("torch_sees_nothing")
def test_one_name_or_record_cannot_be_two_things(forge: Forge) -> None:
    giant = forge.tensor(size=(GIANT,), stride=(0,))
    refused(two_values(forge, forge.tensor(), forge.tensor()), PICKLE)
    refused(two_values(forge, giant, forge.tensor()), "claims more")
    pickled = forge.dictionary(x=forge.tensor(), y=forge.tensor(kind="torch\nIntStorage"))
    refused(forge.file(pickled), "elements of torch.int32")


@pytest.mark.usefixtures("torch_sees_nothing")
def test_sparse_tensors_are_refused() -> None:
    file = io.BytesIO()
    torch.save({"x": torch.ones(3).to_sparse()}, file)
    file.seek(0)
    refused(file, "refers to 'torch._utils _rebuild_sparse_tensor'")


PICKLES = [b"", b"\x80\x02", b"\x80\x02.", b"\x80\x02}}.", b"\x80\x02}.}", b"\x80\x02(}.", b"\x80\x02u."]


@pytest.mark.parametrize(
    ("pickled", "said"),
    [
        *((each, PICKLE) for each in PICKLES),
        (b"\x80\x02].", "holds a list, not a dict"),
        (b"\x80\x02K\x01.", "holds an? int"),
    ],
)
@pytest.mark.usefixtures("torch_sees_nothing")
def test_a_malformed_pickle_is_refused(pickled: bytes, said: str, forge: Forge) -> None:
    refused(forge.file(pickled, {}), said)


FOREIGN = ["constants.pkl", "code/x.py", "data/00", "data/x", "data/../x", "DATA.PKL", "byteorder/", "/data.pkl"]


@pytest.mark.parametrize("name", [*FOREIGN, "policy.pth"])
@pytest.mark.usefixtures("torch_sees_nothing")
def test_a_foreign_record_is_refused(name: str, forge: Forge) -> None:
    refused(forge.file(forge.dictionary(n=b"N"), {}, **{name: b"x"}), f"foreign record {re.escape(ascii(name))};")


def archive(
    records: dict[str, bytes], comment: bytes = b"", start: bytes = b"", of_record: tuple[str, bytes] | None = None
) -> io.BytesIO:
    """Return a zip of these records behind ``start``; each record has an attribute ``of_record``."""
    file = io.BytesIO(start)
    with zipfile.ZipFile(file, "a") as forged:
        forged.comment = comment
        for name, data in records.items():
            record = zipfile.ZipInfo(name)
            setattr(record, *(of_record or ("extra", b"")))
            forged.writestr(record, data)
    file.seek(0)
    return file


def twice(forge: Forge) -> io.BytesIO:
    pickled = forge.dictionary(n=b"N")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # zipfile warns while the file is being forged
        file: io.BytesIO = forge.archive([("data.pkl", pickled), ("version", b"3\n"), ("data.pkl", pickled)])
    return file


def deflated(forge: Forge) -> io.BytesIO:
    pickled = forge.dictionary(x=forge.tensor(size=(2**22,), numel=2**22))
    records = [("data.pkl", pickled), ("version", b"3\n"), ("data/0", bytes(2**24))]
    file: io.BytesIO = forge.archive(records, zipfile.ZIP_DEFLATED)
    assert len(file.getvalue()) < 2**16
    return file


PLAIN = {"archive/data.pkl": b"\x80\x02}.", "archive/version": b"3\n"}
ARCHIVES: dict[str, tuple[Callable[[Forge], io.BytesIO], str]] = {
    "a second pickle": (twice, "its record 'data.pkl' is .* there twice"),
    "a deflated bomb": (deflated, "its record b'archive/data.pkl' is compressed"),
    "another byte order": (lambda f: f.file(f.dictionary(n=b"N"), {}, byteorder=b"big"), "another byte order"),
    "no pickle": (lambda f: f.archive([("version", b"3\n")]), "lacks its record 'data.pkl'"),
    "no version": (lambda f: f.archive([("data.pkl", b"\x80\x02}.")]), "lacks its record 'data.pkl' or 'version'"),
    "an extra field": (lambda _: archive(PLAIN, of_record=("extra", b"\x01\x00\x00\x00")), "carries additions"),
    "a comment": (lambda _: archive(PLAIN, of_record=("comment", b"\x01")), "carries additions"),
    "a file of Stable-Baselines3": (
        lambda _: archive({"data": b"{}"}),
        r"Stable-Baselines3's save\(\).*load\(\) of the class",
    ),
    "a record outside the folder": (lambda _: archive({**PLAIN, "data.pkl": b""}), r"foreign record 'data\.pkl';"),
    "a zip behind another file": (lambda _: archive(PLAIN, start=b"\x80\x02}."), "zip format"),
    "a foreign comment": (lambda _: archive(PLAIN, comment=b"x" * 78), "zip comment is damaged"),
}


@pytest.mark.parametrize("name", ARCHIVES)
@pytest.mark.usefixtures("torch_sees_nothing")
def test_an_archive_that_torch_would_not_write_is_refused(name: str, forge: Forge) -> None:
    make, said = ARCHIVES[name]
    refused(make(forge), said)


def written(at: Callable[[bytes], int], value: bytes) -> Callable[[bytes], bytes]:
    """Return what writes ``value`` over a content at a place in it."""
    return lambda content: content[: at(content)] + value + content[at(content) + len(value) :]


def entry(place: int, value: bytes) -> Callable[[bytes], bytes]:
    """Change the entry of a tensor's record in the zip's directory."""
    return written(lambda content: content.rfind(b"archive/data/0") - 46 + place, value)


def end(place: int, value: bytes) -> Callable[[bytes], bytes]:
    return written(lambda content: content.rfind(b"PK\x05\x06") + place, value)


def header_near_the_end(distance: int) -> Callable[[bytes], bytes]:
    return lambda content: entry(42, struct.pack("<L", len(content) - distance))(content)


def behind_the_directory(content: bytes) -> bytes:
    place = content.rfind(b"PK\x05\x06")
    return content[:place] + b"x" * 76 + content[place:]


CHANGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "compressed by its method": (entry(10, b"\x08"), "its record b'archive/data/0' is compressed"),
    "compressed by its size": (entry(20, b"\x11"), "its record b'archive/data/0' is compressed"),
    "encrypted": (entry(8, b"\x01\x00"), "is compressed or encrypted"),
    "other flags than in the header": (entry(8, b"\x00\x08"), "its record 'data/0' is damaged"),
    "a name beyond the directory": (entry(28, b"\xff\xff"), DIRECTORY),
    "an extra field beyond the directory": (entry(30, b"\x63"), "carries additions"),
    "a comment beyond the directory": (entry(32, b"\x63"), "carries additions"),
    "a header that is none": (header_near_the_end(30), "is damaged"),
    "a header beyond the file": (header_near_the_end(29), DIRECTORY),
    "another disk": (end(4, b"\x01"), DIRECTORY),
    "the directory on another disk": (end(6, b"\x01"), DIRECTORY),
    "entries on another disk": (end(8, b"\x05"), DIRECTORY),
    "fewer entries": (end(8, b"\x03\x00\x03"), DIRECTORY),
    "no directory": (lambda content: content.replace(b"PK\x01\x02", b"PK\x01\x03"), DIRECTORY),
    "something behind the directory": (behind_the_directory, DIRECTORY),
    "something before": (lambda content: b"x" + content, "zip"),
    "something after": (lambda content: content + b"x", "zip"),
    "the same again": (lambda content: content + content, "zip"),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.usefixtures("torch_sees_nothing")
def test_a_directory_that_lies_is_refused(name: str, forge: Forge) -> None:
    change, said = CHANGES[name]
    refused(io.BytesIO(change(forge.file(forge.dictionary(x=forge.tensor())).getvalue())), said)


@pytest.mark.usefixtures("torch_sees_nothing")
def test_two_records_cannot_share_bytes(forge: Forge) -> None:
    pickled = forge.dictionary(x=forge.tensor(size=(15,), numel=15), y=forge.tensor(key="1"))
    content = forge.file(pickled, {"0": bytes(60), "1": bytes(16)}).getvalue()
    first, second = (content.find(b"archive/data/" + key) - 30 for key in (b"0", b"1"))
    within = bytearray(forge.file(pickled, {"0": content[second : second + 60], "1": bytes(16)}).getvalue())
    for forged, place in ((bytearray(content), first), (within, within.find(b"archive/data/1") - 30)):
        struct.pack_into("<L", forged, forged.rfind(b"archive/data/1") - 4, place)
        refused(io.BytesIO(bytes(forged)), r"its record 'data/[01]' is damaged, there twice, or overlaps another")


def test_a_tensor_that_does_not_lie_where_its_type_needs_it_is_copied(forge: Forge) -> None:
    """A zip file of another writer puts records anywhere."""
    for size in range(1, 5):
        found = read(forge.file(forge.dictionary(x=forge.tensor()), **{".data/serialization_id": b"1" * size}))["x"]
        assert (found.data_ptr() % 4, found.tolist()) == (0, [1.0, 2.0, 3.0, 4.0])


@pytest.mark.parametrize("limit", ["MAX_DIRECTORY_BYTES", "MAX_PICKLE_BYTES"])
def test_as_many_bytes_are_read_as_the_limit_allows(limit: str, forge: Forge, monkeypatch: pytest.MonkeyPatch) -> None:
    pickled = forge.dictionary(n=b"N")
    content = forge.file(pickled, {}).getvalue()
    size = len(pickled) if "PICKLE" in limit else struct.unpack_from("<L", content, len(content) - 10)[0]
    monkeypatch.setattr(torch_file, limit, size)
    assert read(io.BytesIO(content)) == {"n": None}
    monkeypatch.setattr(torch_file, limit, size - 1)
    refused(io.BytesIO(content), f"at most {size - 1} are read|{DIRECTORY}")
