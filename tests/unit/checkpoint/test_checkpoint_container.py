"""A payload that is saved comes back the same; one that would not is refused with the path of keys to the culprit."""

from __future__ import annotations

import io
import math
import re
import warnings
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

from rlcore.checkpoint import load_container, save_container, torch_file
from rlcore.checkpoint.container import decode
from rlcore.checkpoint.torch_file import RefusedError, check_values, plain
from rlcore.errors import CheckpointError, RLCoreError

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
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (5,), (2, 3, 1), (2, 3, 4)], ids=str)
def test_tensor_comes_back_bit_for_bit(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    tensor = (torch.randn(shape) * 3).to(dtype)
    result = loaded(saved({"x": tensor}))["x"]
    assert result.dtype == dtype
    assert result.shape == shape
    assert torch.equal(result, tensor)


def test_a_tensor_of_as_many_dimensions_as_torch_takes_comes_back() -> None:
    tensor = torch.ones((1,) * 64)
    assert torch.equal(loaded(saved({"x": tensor}))["x"], tensor)


@pytest.mark.parametrize(
    "value", [math.inf, -math.inf, 2**1999, -(2**1999), -1, 256, 70000, "\ud800", "\u0430\x1b[2J", ""]
)
def test_extreme_scalars_come_back(value: object) -> None:
    assert loaded(saved({"x": value})) == {"x": value}


def test_nan_comes_back() -> None:
    payload = loaded(saved({"x": math.nan, "t": torch.tensor([math.nan, 1.0])}))
    assert math.isnan(payload["x"])
    assert payload["t"].isnan().tolist() == [True, False]


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
    result = loaded(saved({"whole": shared, "twin": shared.view(2, 3), "listed": [shared], "negated": negated()}))
    result["whole"].fill_(7.0)
    assert result["listed"][0].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert result["twin"].tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert result["negated"].tolist() == [-1.0, 2.0]


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


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_tensor_on_another_device_is_saved_from_the_cpu() -> None:
    (taken,) = plain({"x": torch.arange(6.0, device="cuda")}).values()
    assert isinstance(taken, torch.Tensor)
    assert taken.device.type == "cpu"
    assert taken.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def negated() -> torch.Tensor:
    """Numbers that lie in memory with the other sign."""
    return torch._neg_view(torch.tensor([1.0, -2.0]))


def test_a_view_is_saved_without_the_storage_behind_it() -> None:
    content = saved({"x": torch.zeros(1_000_000)[:10], "row": torch.arange(12.0).reshape(3, 4).t()})
    assert len(content) < 5_000
    assert torch.equal(loaded(content)["row"], torch.arange(12.0).reshape(3, 4).t())


def test_a_parameter_is_saved_as_a_plain_tensor_apart_from_the_original() -> None:
    parameter = nn.Parameter(torch.ones(3))
    result = loaded(saved({"x": parameter}))["x"]
    assert type(result) is torch.Tensor
    assert not result.requires_grad
    assert torch.equal(result, torch.ones(3))
    assert parameter.requires_grad


def test_saving_changes_nothing_in_the_payload() -> None:
    network, optimizer = trained_network()
    payload = {"policy": network.state_dict(), "optimizer": optimizer.state_dict(), "list": [1, (2, 3)]}
    before = repr(payload)
    saved(payload)
    assert repr(payload) == before


def test_one_list_in_two_places_is_saved_as_two() -> None:
    shared = [1, 2]
    assert loaded(saved({"a": shared, "b": shared})) == {"a": [1, 2], "b": [1, 2]}


def test_plain_torch_load_reads_the_file(tmp_path: Path) -> None:
    save_container(tmp_path / "x.pt", {"x": torch.arange(3), "n": 1})
    result = torch.load(tmp_path / "x.pt", weights_only=True)
    assert torch.equal(result["x"], torch.arange(3))
    assert result["n"] == 1


def looping_list() -> list[object]:
    loop: list[object] = []
    loop.append(loop)
    return loop


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
    (Plain(a=1), "is a Plain; save a plain dict"),
    (defaultdict(int), "is a defaultdict"),
    ({True: 1}, r"\[1\] has a key of type bool"),
    ({1.5: 1}, "has a key of type float"),
    ({(1, 2): 1}, "has a key of type tuple"),
    (2**2000, r"payload\['a'\]\['b'\]\[1\] is an integer of 2001 bits"),
    ({2**2000: 1}, "a key of .* is an integer of 2001 bits"),
    (looping_list(), "nested deeper than 64"),
    (deep_list(70), "nested deeper than 64"),
    (torch.ones(2).to_sparse(), r"\['a'\]\['b'\]\[1\] is a tensor .*torch.sparse_coo"),
    (torch.ones(2, device="meta"), "on meta"),
    (torch.ones(2, dtype=torch.complex64), "torch.complex64"),
    (torch.ones(2, dtype=torch.float8_e4m3fn), "torch.float8_e4m3fn"),
    (torch.ones(2).as_subclass(Tagged), r"\[1\] is a Tagged; save a plain torch.Tensor"),
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


@pytest.mark.parametrize(("payload", "kind"), [([1], "list"), (torch.ones(1), "Tensor"), (None, "NoneType")])
def test_only_a_dict_can_be_saved(payload: Any, kind: str) -> None:
    with pytest.raises(CheckpointError, match=f"holds a dict, not {kind}"):
        saved(payload)


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


def annotated() -> OrderedDict[str, int]:
    state: OrderedDict[str, int] = OrderedDict(a=1)
    state.note = "x"  # type: ignore[attr-defined]
    return state


PLACES: list[tuple[Any, str]] = [
    ({"x": {"y": [0, b""]}}, r"^payload\['x'\]\['y'\]\[1\] is a bytes"),
    ({"x": {True: 1}}, r"^payload\['x'\] has a key of type bool"),
    ({"x": {2**2000: 1}}, r"^a key of payload\['x'\] is an integer of 2001 bits"),
    ({"x": described({"w": b""})}, r"^payload\['x'\]\._metadata\['w'\] is a bytes"),
    ({"x": annotated()}, r"^payload\['x'\] carries attributes \['note'\]"),
]


@pytest.mark.parametrize("check", [plain, check_values])
@pytest.mark.parametrize(("payload", "said"), PLACES, ids=["item", "key", "long key", "metadata", "attribute"])
def test_the_path_to_what_a_checkpoint_cannot_hold_is_the_same_on_writing_and_on_reading(
    payload: Any, said: str, check: Callable[[Any], object]
) -> None:
    with pytest.raises(RefusedError, match=said):
        check(payload)


@pytest.mark.parametrize("nest", NESTINGS, ids=["lists", "dicts", "metadata"])
def test_what_was_read_has_64_levels_at_most(nest: Callable[[object], object]) -> None:
    check_values(nested(nest, 64))
    with pytest.raises(RefusedError, match=r"^payload\['x'\].{68}\.\.\. is nested deeper than 64"):
        check_values(nested(nest, 65))


def test_what_was_read_stands_in_one_place() -> None:
    shared = [1]
    with pytest.raises(RefusedError, match=r"^payload\['[ab]'\] is a list that is in two places"):
        check_values({"a": shared, "b": shared})


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


def test_a_content_comes_back_and_a_damaged_one_is_refused_unless_it_is_known_to_be_intact() -> None:
    content = memoryview(bytearray(saved({"x": torch.arange(64.0)})))
    place = bytes(content).find(torch.arange(64.0).numpy().tobytes())
    assert torch.equal(decode(content)["x"], torch.arange(64.0))  # type: ignore[arg-type]
    content[place] ^= 1
    with pytest.raises(RefusedError, match="is damaged"):
        decode(content)
    assert not torch.equal(decode(content, is_intact=True)["x"], torch.arange(64.0))  # type: ignore[arg-type]


def test_a_tensor_that_was_read_is_a_part_of_the_content_and_can_be_changed_without_another() -> None:
    content = memoryview(bytearray(saved({"x": torch.zeros(3), "y": torch.ones(2)})))
    payload: Any = decode(content)
    payload["x"].fill_(2.0)
    assert payload["y"].tolist() == [1.0, 1.0]
    assert decode(content, is_intact=True)["x"].tolist() == [2.0] * 3  # type: ignore[union-attr]
    file = io.BytesIO()
    torch.save(payload["y"], file)
    assert torch.load(io.BytesIO(file.getvalue()), weights_only=True).untyped_storage().nbytes() == 8


def test_a_file_with_digest_brings_no_warning(tmp_path: Path) -> None:
    save_container(tmp_path / "x.pt", {"n": 1})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_container(tmp_path / "x.pt") == {"n": 1}


def test_map_location_that_does_not_exist_is_one_clear_error() -> None:
    with pytest.raises(CheckpointError, match="cannot be loaded onto 'nowhere'"):
        loaded(saved({"x": torch.ones(1)}), map_location="nowhere")


def test_a_device_that_this_machine_lacks_is_refused_with_the_error_that_torch_gives() -> None:
    with pytest.raises(
        CheckpointError, match=r"cannot be loaded onto 'cuda:99' \((Assertion|Runtime|Accelerator)Error\)"
    ):
        loaded(saved({}), map_location="cuda:99")


def test_tensors_are_put_on_the_device_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shown by one that every machine has, and that holds no data, for which the tensors are refused in the end."""
    content = memoryview(bytearray(saved({"x": torch.ones(1)})))
    with pytest.raises(RefusedError, match="on meta"):
        check_values(torch_file.read_pickle(torch_file.read_records(content), torch.device("meta")))
    monkeypatch.setattr(torch_file, "read_pickle", lambda _, device: {"device": str(device)})
    assert decode(content, "cpu:0") == {"device": "cpu:0"}


def test_meta_tensors_are_not_handed_out() -> None:
    with pytest.raises(CheckpointError, match="cannot be loaded onto 'meta'"):
        loaded(saved({"x": torch.ones(1)}), map_location="meta")


def test_the_error_carries_path_and_reason_and_belongs_to_the_family(tmp_path: Path) -> None:
    (tmp_path / "x.pt").write_bytes(b"nothing")
    with pytest.raises(CheckpointError) as caught:
        load_container(tmp_path / "x.pt")
    assert isinstance(caught.value, RLCoreError)
    assert caught.value.path == str(tmp_path / "x.pt")
    assert caught.value.reason in str(caught.value)


def test_a_file_object_is_refused_what_would_not_be_read_again_by_the_same_error_as_a_path() -> None:
    with pytest.raises(CheckpointError, match=r"file object: its pickle has \d+ bytes; at most"):
        save_container(io.BytesIO(), {"a": "x" * 9_000_000})
