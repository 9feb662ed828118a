"""A payload that is saved comes back the same; one that would not is refused with the path of keys to the culprit."""

from __future__ import annotations

import io
import math
import re
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from rlcore.checkpoint.container import decode, load_container, save_container
from rlcore.checkpoint.torch_file import plain
from rlcore.errors import CheckpointError

DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
]


def saved(payload: Any) -> bytes:
    file = io.BytesIO()
    save_container(file, payload)
    return file.getvalue()


def loaded(content: bytes, **options: Any) -> Any:
    return load_container(io.BytesIO(content), **{"require_digest": True, **options})


def trained_network() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(3)
    network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.LSTM(4, 2))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    network(torch.randn(5, 3))[0].sum().backward()
    optimizer.step()
    return network, optimizer


def plain_values() -> st.SearchStrategy[Any]:
    leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=6))
    keys = st.one_of(st.text(max_size=6), st.integers())
    return st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3))


@given(st.dictionaries(st.one_of(st.text(max_size=6), st.integers()), plain_values(), max_size=4))
def test_plain_python_comes_back_equal_and_of_the_same_types(payload: dict[Any, Any]) -> None:
    # repr tells True from 1 and 1.0 from 1, which == does not
    assert repr(loaded(saved(payload))) == repr(payload)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (5,), (2, 3, 1), (1,) * 64], ids=str)
def test_tensor_comes_back_bit_for_bit(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    tensor = (torch.randn(shape) * 3).to(dtype)
    result = loaded(saved({"x": tensor}))["x"]
    assert result.dtype == dtype
    assert result.shape == shape
    assert torch.equal(result, tensor)


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, 2**1999, -(2**1999), -1, 256, 70000, "\ud800", "\u0430\x1b[2J", ""]
)
def test_extreme_scalars_come_back(value: object) -> None:
    assert repr(loaded(saved({"x": value}))) == repr({"x": value})


def test_state_dict_of_a_module_keeps_its_order_values_and_metadata() -> None:
    network, _ = trained_network()
    state: Any = network.state_dict()
    state._metadata["w"] = torch.arange(3)
    result: Any = loaded(saved({"policy": state}))["policy"]
    assert type(result).__name__ == "OrderedDict"
    assert list(result) == list(state)
    assert all(torch.equal(result[name], state[name]) for name in state)
    assert result._metadata.pop("w").tolist() == state._metadata.pop("w").tolist() == [0, 1, 2]
    assert result._metadata == state._metadata
    assert result._metadata["1"]["version"] == 2  # BatchNorm's, without which load_state_dict resets its counter


def test_state_dict_of_adam_comes_back_and_continues_identically() -> None:
    network, optimizer = trained_network()
    result = loaded(saved(optimizer.state_dict()))
    assert result["param_groups"] == optimizer.state_dict()["param_groups"]
    assert result["param_groups"][0]["betas"] == (0.9, 0.999)
    for index, state in optimizer.state_dict()["state"].items():
        assert all(torch.equal(result["state"][index][name], value) for name, value in state.items())
    torch.optim.Adam(network.parameters()).load_state_dict(result)


def test_tensors_that_share_their_memory_are_saved_each_for_itself() -> None:
    """One of them is the whole storage, so that it needs no copy, and so is its twin."""
    shared = torch.arange(6.0)
    result = loaded(
        saved(
            {
                "whole": shared,
                "twin": shared.view(2, 3),
                "listed": [shared],
                "negated": negated(),
                "cut": torch.zeros(10**6)[:1],
            }
        )
    )
    result["whole"].fill_(7.0)
    assert result["listed"][0].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert result["twin"].tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert result["negated"].tolist() == [-1.0, 2.0]
    assert len(saved({"part": torch.zeros(10**6)[:10], "row": torch.arange(12.0).reshape(3, 4).t()})) < 5_000


def test_equal_payloads_give_equal_bytes() -> None:
    """In the first the two texts and the two tuples are one object each, in the second they are not."""
    text, (pair, *pairs) = "".join(["n", "ame"]), [(0.9, float(end)) for end in ("0.999", "0.999", "0.999")]
    shared = {"list": [text, text], "pairs": [pair, pair], "a": {text: 1}, "b": {text: 2}}
    apart = {
        "list": ["".join(["na", "me"]), "".join(["nam", "e"])],
        "pairs": pairs,
        "a": {"".join(["n", "a", "me"]): 1},
        "b": {"".join(["n", "am", "e"]): 2},
    }
    assert shared == apart
    assert saved(shared) == saved(apart)
    assert saved(loaded(saved(shared))) == saved(shared)


def test_a_tensor_that_can_be_written_as_it_lies_in_memory_is_not_copied_first() -> None:
    tensor = torch.arange(6.0)
    (taken,) = plain({"x": tensor}).values()
    assert isinstance(taken, torch.Tensor)
    assert taken.data_ptr() == tensor.data_ptr()


def negated() -> torch.Tensor:
    """Numbers that lie in memory with the other sign."""
    return torch._neg_view(torch.tensor([1.0, -2.0]))


def test_plain_torch_load_reads_the_file(tmp_path: Path) -> None:
    save_container(tmp_path / "x.pt", {"x": torch.arange(3), "n": 1})
    result = torch.load(tmp_path / "x.pt", weights_only=True)
    assert torch.equal(result["x"], torch.arange(3))
    assert result["n"] == 1


def deep_list(depth: int) -> list[object]:
    return [deep_list(depth - 1)] if depth else []


class Plain(dict[str, int]):
    pass


class Tagged(torch.Tensor):
    pass


def described(metadata: object) -> OrderedDict[str, int]:
    """A dict with metadata, as that of a module has."""
    state: OrderedDict[str, int] = OrderedDict(a=1)
    state._metadata = metadata  # type: ignore[attr-defined]
    return state


UNSAVABLE: list[tuple[Any, str]] = [
    (np.float64(1.0), r"payload\['a'\]\['b'\]\[1\] is a numpy.float64.*\.item\(\)"),
    (np.zeros(2), "numpy.ndarray.*as_tensor"),
    (lambda: None, r"\['a'\]\['b'\]\[1\] is a function"),
    ((1, [2]), "is a tuple that holds a list"),
    ((torch.ones(1),), "is a tuple that holds a torch.Tensor"),
    (b"bytes", r"is a bytes; a checkpoint holds .* and tuples of plain values$"),
    ({1, 2}, "is a set"),
    (1j, "is a complex"),
    (torch.float32, "is a torch.dtype"),
    (Plain(a=1), "is a .*Plain; a checkpoint holds"),
    (defaultdict(int), "is a collections.defaultdict"),
    ({True: 1}, r"\[1\] has a key of type bool"),
    ({1.5: 1}, "has a key of type float"),
    ({(1, 2): 1}, "has a key of type tuple"),
    ({"k" * 1001: 1}, "has a key of 1001 characters; keys have at most 1000"),
    (described({"w": b""}), r"payload\['a'\]\['b'\]\[1\]\._metadata\['w'\] is a bytes"),
    (2**2040, "which a checkpoint never needs"),
    (deep_list(70), "nested deeper than 64"),
    (torch.ones(2).to_sparse(), r"\['a'\]\['b'\]\[1\] is a tensor .*torch.sparse_coo"),
    (torch.ones(2, device="meta"), "on meta"),
    (torch.ones(2, dtype=torch.complex64), "torch.complex64"),
    (torch.ones(2, dtype=torch.float8_e4m3fn), "torch.float8_e4m3fn"),
    (torch.ones(2).as_subclass(Tagged), r"\[1\] is a tensor that cannot be saved \(Tagged"),
]


@pytest.mark.parametrize(("value", "said"), UNSAVABLE, ids=[re.sub(r"\W+", " ", said) for _, said in UNSAVABLE])
def test_a_value_that_cannot_be_saved_is_named_and_nothing_is_written(value: Any, said: str, tmp_path: Path) -> None:
    target = tmp_path / "x.pt"
    target.write_bytes(b"old")
    with pytest.raises(CheckpointError, match=said) as caught:
        save_container(target, {"a": {"b": [0, value]}})
    assert caught.value.path == str(target)
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["x.pt"]


NESTINGS: list[Callable[[object], object]] = [lambda inner: [inner], lambda inner: {"k": inner}, described]


def nested(nest: Callable[[object], object], levels: int) -> dict[str, Any]:
    value: object = {}
    for _ in range(levels - 2):
        value = nest(value)
    return {"x": value}


@pytest.mark.parametrize("nest", NESTINGS, ids=["lists", "dicts", "metadata"])
def test_64_levels_come_back_and_65_are_refused(nest: Callable[[object], object]) -> None:
    assert repr(loaded(saved(nested(nest, 64)))) == repr(nested(nest, 64))
    with pytest.raises(CheckpointError, match="nested deeper than 64"):
        saved(nested(nest, 65))


def test_what_contains_itself_is_refused() -> None:
    loop: dict[Any, Any] = {}
    loop["k"] = loop
    state = described(None)
    state._metadata = state  # type: ignore[attr-defined]
    for payload in (loop, state):
        with pytest.raises(CheckpointError, match="nested deeper than 64"):
            saved(payload)


def test_a_file_without_digest_warns_once_and_is_refused_on_demand(tmp_path: Path) -> None:
    torch.save({"x": torch.ones(2)}, tmp_path / "x.pt")
    with pytest.warns(UserWarning, match=f"^{re.escape(str(tmp_path / 'x.pt'))} carries no digest") as caught:
        payload = load_container(tmp_path / "x.pt")
    assert torch.equal(payload["x"], torch.ones(2))  # type: ignore[arg-type]
    assert [Path(warning.filename).name for warning in caught] == [Path(__file__).name]
    with pytest.raises(CheckpointError, match="carries no digest"):
        load_container(tmp_path / "x.pt", require_digest=True)
    with pytest.warns(UserWarning, match=r"^the file object carries no digest"):
        load_container(io.BytesIO((tmp_path / "x.pt").read_bytes()))


def test_a_tensor_that_was_read_is_a_part_of_the_content_and_can_be_changed_without_another() -> None:
    content = memoryview(bytearray(saved({"x": torch.zeros(3), "y": torch.ones(2)})))
    payload: Any = decode(content)
    payload["x"].fill_(2.0)
    assert payload["y"].tolist() == [1.0, 1.0]
    assert decode(content, is_intact=True)["x"].tolist() == [2.0] * 3  # type: ignore[union-attr]
    file = io.BytesIO()
    torch.save(payload["y"], file)
    assert torch.load(io.BytesIO(file.getvalue()), weights_only=True).untyped_storage().nbytes() == 8


def test_map_location_that_does_not_exist_is_one_clear_error() -> None:
    with pytest.raises(CheckpointError, match=r"cannot be read .*nowhere"):
        loaded(saved({"x": torch.ones(1)}), map_location="nowhere")


def test_a_file_object_is_refused_what_would_not_be_read_again_by_the_same_error_as_a_path() -> None:
    with pytest.raises(CheckpointError, match=r"file object: has .* too long .*its pickle has \d+ bytes; at most"):
        save_container(io.BytesIO(), {"a": "x" * 9_000_000})


TOO_MANY: dict[str, tuple[list[Any], str]] = {
    "numbers": ([0.5] * 600_000, r"its pickle has more than \d+ instructions"),
    "tensors": ([torch.zeros(1)] * 66_000, r"its zip directory has \d+ bytes; at most \d+ are read"),
}


@pytest.mark.parametrize("kind", TOO_MANY)
def test_too_many_values_are_refused_with_what_to_do(kind: str, tmp_path: Path) -> None:
    values, reason = TOO_MANY[kind]
    said = rf"has too many Python values.*\({reason}\); keep numbers in an array or a tensor"
    with pytest.raises(CheckpointError, match=said):
        save_container(tmp_path / "x.pt", {"state": [{"hist": values}, 1.0], "step": 3})
    assert list(tmp_path.iterdir()) == []
