"""A small file cannot cost much memory or time, and no tensor in it is anything but what its bytes say."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch

from rlcore.checkpoint import load_container, outline
from rlcore.checkpoint.outline import MAX_PICKLE_BYTES
from tests.security.refusals import refused

GIANT = 10**12


def test_the_forged_file_without_changes_loads(forge: Any) -> None:
    """Without this the refusals below might be about the forging."""
    with pytest.warns(UserWarning, match="no digest"):
        payload = load_container(forge.file(forge.dictionary(x=forge.tensor(), n=forge.literal(5))))
    assert payload["x"].tolist() == [1.0, 2.0, 3.0, 4.0]  # type: ignore[union-attr]
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
def test_values_that_share_a_list_or_hold_themselves_are_refused(forge: Any) -> None:
    doubling = b"]q\x00" + b"".join(
        b"]" + b"h" + bytes([i]) + b"ah" + bytes([i]) + b"a" + b"q" + bytes([i + 1]) for i in range(60)
    )
    refused(forge.file(forge.dictionary(x=b"(" + doubling + b"t"), {}), "tuple that holds")
    refused(forge.file(forge.dictionary(x=b"]q\x00h\x00a"), {}), "stands in two places")
    refused(forge.file(forge.dictionary(x=b"]q\x00", y=b"h\x00"), {}), "stands in two places")


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
    monkeypatch.setattr(outline, "MAX_PICKLE_BYTES", len(pickled))
    with pytest.warns(UserWarning, match="no digest"):
        assert load_container(forge.file(pickled, {})) == {"n": None}
    monkeypatch.setattr(outline, "MAX_PICKLE_BYTES", len(pickled) - 1)
    refused(forge.file(pickled, {}), f"has {len(pickled)} bytes; at most {len(pickled) - 1} are read")


@pytest.mark.parametrize(("pickled", "kind"), [(b"\x80\x02].", "list"), (b"\x80\x02K\x01.", "int")])
def test_a_value_that_is_no_dict_is_refused(pickled: bytes, kind: str, forge: Any) -> None:
    refused(forge.file(pickled, {}), f"holds a {kind}, not a dict")
