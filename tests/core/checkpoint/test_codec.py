"""Settings survive a model file: through real torch.save and torch.load(weights_only=True), equal in what they do."""

from __future__ import annotations

import inspect
import io
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from stable_baselines3.common.torch_layers import CombinedExtractor, FlattenExtractor, NatureCNN
from stable_baselines3.common.utils import FloatSchedule, LinearSchedule

from rlcore import DistributionalPPO
from rlcore.checkpoint import codec
from rlcore.errors import CheckpointError
from tests.core.checkpoint.test_old_files import SETTINGS
from tests.support.training import make_model


def through_file(value: object, field: str = "setting", custom_objects: dict[str, object] | None = None) -> Any:
    """Encode, write, read without executing anything, decode."""
    file = io.BytesIO()
    torch.save(codec.encode(value, field), file)
    file.seek(0)
    return codec.decode(torch.load(file, weights_only=True), field, custom_objects or {})


class Unregistered(torch.nn.Module):
    pass


nested_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda part: (
        st.lists(part, max_size=3)
        | st.lists(part, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(), part, max_size=3)
    ),
    max_leaves=8,
)


@given(nested_values)
def test_nested_values_come_back_equal(value: object) -> None:
    assert repr(through_file(value)) == repr(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(np.float32(0.5), 0.5), (np.int16(-3), -3), (np.bool_(True), True), (np.str_("a"), "a"), (np.float64(0.1), 0.1)],
)
def test_numpy_scalars_become_python_values(value: object, expected: object) -> None:
    encoded = codec.encode(value, "setting")

    assert encoded == expected
    assert type(encoded) is type(expected)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint64", "bool"])
def test_numpy_scalars_keep_their_dtype_where_they_are_asked_to(dtype: str) -> None:
    value = np.array([1]).astype(dtype)[0] / np.dtype(dtype).type(1)
    (restored,), other = codec.decode(codec.encode([(value,), {"a": value}], "state", exact=True), "state", {})

    assert (type(restored), restored, type(other["a"])) == (type(value), value, type(value))
    assert codec.encode(np.str_("a"), "state", exact=True) == "a"


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint16", "uint64", "bool"])
def test_arrays_keep_dtype_shape_and_content(dtype: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)

    restored = through_file(array)

    assert restored.dtype == array.dtype
    np.testing.assert_array_equal(restored, array)
    assert restored.shape == (2, 3)


def test_a_tensor_is_stored_without_its_graph_and_without_sharing_memory() -> None:
    tensor = torch.ones(2, dtype=torch.bfloat16, requires_grad=True)

    encoded = codec.encode(tensor, "setting")
    with torch.no_grad():
        tensor.zero_()

    assert isinstance(encoded, torch.Tensor)
    assert not encoded.requires_grad
    assert encoded.dtype == torch.bfloat16
    assert encoded.tolist() == [1.0, 1.0]


RESTORED: dict[str, Any] = {
    **{name: value for name, value in SETTINGS.items() if not name.startswith(("tensor", "array"))},
    "float16 box": spaces.Box(0.0, 1.0, (2,), np.float16),
    "0-dimensional": spaces.Box(-2, 5, (), np.int64),
    "nested": spaces.Tuple([spaces.Discrete(2), spaces.Dict({"b": spaces.MultiBinary(2), "a": spaces.Discrete(2)})]),
    "float": FloatSchedule(0.25),
    **{cls.__name__: cls for cls in (torch.optim.Adam, torch.nn.Mish, FlattenExtractor, CombinedExtractor, NatureCNN)},
}


@pytest.mark.parametrize("name", RESTORED)
def test_a_setting_comes_back_and_does_the_same(name: str) -> None:
    value, restored = RESTORED[name], through_file(RESTORED[name])
    assert type(restored) is type(value)
    assert repr(restored) == repr(value)
    assert codec.same(codec.encode(restored, name), codec.encode(value, name))
    if isinstance(value, spaces.Space):
        assert (restored, restored.dtype) == (value, value.dtype)


@pytest.mark.parametrize("space", [each for each in RESTORED.values() if isinstance(each, spaces.Space)], ids=str)
def test_spaces_come_back_equal_and_sample_alike(space: spaces.Space[Any]) -> None:
    restored = through_file(space)

    space.seed(3)
    restored.seed(3)
    for _ in range(5):
        np.testing.assert_equal(restored.sample(), space.sample())


@pytest.mark.skipif("dtype" not in inspect.signature(spaces.Discrete).parameters, reason="Gymnasium of one dtype")
def test_a_discrete_space_keeps_its_dtype() -> None:
    space = spaces.Discrete(3, start=-2, dtype=np.int32)

    assert through_file(space) == space
    assert through_file(space).dtype == np.int32


def test_an_unbounded_integer_box_stays_unbounded() -> None:
    restored = through_file(spaces.Box(-np.inf, 9, (2,), np.int64))

    assert restored.bounded_below.tolist() == [False, False]
    assert restored.bounded_above.tolist() == [True, True]


def test_a_number_of_a_schedule_can_be_replaced_by_its_name() -> None:
    replaced = through_file(LinearSchedule(1.0, 0.25, 0.5), "ramp", {"ramp.end": 0.5})
    assert vars(replaced) == {"start": 1.0, "end": 0.5, "end_fraction": 0.5}


@pytest.mark.parametrize(
    ("value", "described"),
    [
        (lambda progress: progress, "<lambda>"),
        (Unregistered, "Unregistered"),
        (Unregistered(), "Unregistered"),
        (math.sqrt, "math.sqrt"),
        *((np.array(content), r"numpy\.ndarray") for content in (["a"], [None], [1j], [b"a"])),
        (np.array(["2000-01-01"], "datetime64[D]"), r"numpy\.ndarray"),
        ({(1, 2): 3}, "builtins.dict"),
        (defaultdict(int, a=1), "collections.defaultdict"),
        ({codec.KIND: "class", "name": "torch.nn.Tanh"}, "builtins.dict"),
    ],
    ids=lambda value: value.replace("\\", "") if isinstance(value, str) else "",
)
def test_what_no_file_can_hold_asks_for_a_custom_object(value: object, described: str) -> None:
    with pytest.raises(CheckpointError, match=f"'clip_range' was .*{described}.*custom_objects={{'clip_range': ...}}"):
        through_file(value, "clip_range")

    assert through_file(value, "clip_range", {"clip_range": 0.2}) == 0.2


def test_a_callable_inside_a_schedule_is_asked_for_under_the_name_of_the_setting() -> None:
    schedule = FloatSchedule(lambda progress: progress / 2)

    with pytest.raises(CheckpointError, match=r"custom_objects=\{'clip_range': \.\.\.\}"):
        through_file(schedule, "clip_range")
    assert through_file(schedule, "clip_range", {"clip_range": schedule}) is schedule


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"activation_fn": Unregistered}, "policy_kwargs.activation_fn"),
        ({"a": {"b": Unregistered}}, "policy_kwargs.a.b"),
        ([0, Unregistered], "policy_kwargs.1"),
        ((0, (Unregistered,)), "policy_kwargs.1.0"),
    ],
)
def test_parts_are_named_by_their_path(value: object, field: str) -> None:
    with pytest.raises(CheckpointError, match=f"'{field}'"):
        through_file(value, "policy_kwargs")

    through_file(value, "policy_kwargs", {field: torch.nn.Tanh})


def test_a_custom_object_wins_over_what_the_file_has() -> None:
    value = {"activation_fn": torch.nn.Tanh, "net_arch": [64, 64]}
    custom: dict[str, object] = {"policy_kwargs.activation_fn": torch.nn.ReLU, "policy_kwargs.net_arch.1": 32}

    restored = through_file(value, "policy_kwargs", custom)

    assert restored == {"activation_fn": torch.nn.ReLU, "net_arch": [64, 32]}


def box_of(dtype: str, count: int) -> dict[str, Any]:
    def zeros(of: str) -> dict[str, Any]:
        content = torch.zeros(count * np.dtype(of).itemsize, dtype=torch.uint8)
        return {"dtype": of, "shape": [count], "bytes": content}

    limits, flags = zeros(dtype), zeros("bool")
    return {codec.KIND: "Box", "low": limits, "high": limits, "bounded_below": flags, "bounded_above": flags}


ARRAY: dict[str, Any] = {"dtype": "float32", "shape": [2], "bytes": torch.zeros(8, dtype=torch.uint8)}
FLAGS = {"dtype": "bool", "shape": [2], "bytes": torch.ones(2, dtype=torch.uint8)}
BOX = {codec.KIND: "Box", "low": ARRAY, "high": ARRAY, "bounded_below": FLAGS, "bounded_above": FLAGS}
MALFORMED: list[dict[str, Any]] = [
    *({codec.KIND: kind} for kind in ("Graph", [1], "class", "placeholder", "FloatSchedule", "tuple")),
    *({codec.KIND: "class", "name": name} for name in ("os.system", None, [1], 5000 * "x", "\x1b[31m")),
    *({codec.KIND: "Discrete", "n": n, "start": 0, "dtype": "int64"} for n in (0, 2.5, "3", None)),
    {codec.KIND: "Discrete", "n": 3},
    *({codec.KIND: "tuple", "items": items, **more} for items, more in ((3, {}), ([], {"seed": 1}))),
    *({codec.KIND: "ConstantSchedule", "val": value} for value in ("x", None, [1])),
    {codec.KIND: "FloatSchedule", "value_schedule": None},
    *({codec.KIND: "torch.dtype", "name": name} for name in ("load", "nn", 3)),
    {codec.KIND: "torch.device", "name": "toaster"},
    *({codec.KIND: "MultiBinary", "n": n} for n in (-1, "x", [0])),
    {codec.KIND: "Dict", "spaces": [["a"]]},
    {codec.KIND: "Tuple", "items": [3]},
    *({**BOX, "low": {**ARRAY, **change}} for change in ({"shape": [3]}, {"bytes": 3}, {"shape": [1, 2]})),
    *(box_of(dtype, count) for dtype, count in (("uint8", 2**22 + 1), ("longdouble", 2**21 + 1))),
    *({**BOX, "low": {**ARRAY, "dtype": dtype}} for dtype in ("object", 3, "complex64")),
    *({**BOX, "bounded_below": {**FLAGS, "shape": [3]}}, {**BOX, "low": 3}),
]


@pytest.mark.parametrize("value", MALFORMED, ids=range(len(MALFORMED)))
def test_a_malformed_setting_is_one_short_error_that_names_it(value: Any) -> None:
    with pytest.raises(CheckpointError, match="'gamma") as caught:
        codec.decode(value, "gamma", {})
    assert len(str(caught.value)) < 500
    assert "\x1b" not in str(caught.value)
    assert codec.decode(value, "gamma", {"gamma": 0.9}) == 0.9


def test_the_name_of_a_dtype_imports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(torch, "__getattr__", asked.append)
    with pytest.raises(CheckpointError, match="'_inductor' is not the name of a dtype"):
        codec.decode({codec.KIND: "torch.dtype", "name": "_inductor"}, "gamma", {})
    assert asked == []


def test_a_box_of_older_files_has_arrays_without_their_kind() -> None:
    assert codec.decode(BOX, "space", {}) == spaces.Box(0, 0, (2,), np.float32)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        *((np.arange(3.0), other) for other in (np.arange(4.0), np.arange(3), 1.0, [0.0, 1.0, 2.0], None)),
        *((torch.ones(2), other) for other in (torch.ones(3), torch.ones(2).double(), torch.zeros(2), 1.0)),
        *(({"a": 1}, other) for other in ({}, {"b": 1}, {"a": 2}, [1])),
        *(([1, 2], other) for other in ([1], [1, 3], (1, 2), "12")),
        *((math.ceil, other) for other in (math.sqrt, 1.0, FloatSchedule(math.ceil))),
    ],
)
def test_what_a_file_would_hold_otherwise_is_not_the_same(left: Any, right: Any) -> None:
    left, right = (codec.encode(each, "setting") for each in (left, right))
    assert not codec.same(left, right)
    assert not codec.same(right, left)


def test_the_name_of_a_deep_setting_is_cut_so_that_many_entries_cost_little() -> None:
    value: Any = codec.encode(Unregistered, "")
    for _ in range(60):
        value = {"k" * 1000: value}
    with pytest.raises(CheckpointError, match=r"the setting 'setting\.kkk") as refusal:
        codec.decode(value, "setting", {})
    assert len(refusal.value.reason) < 3000


def test_arrays_that_would_not_be_read_are_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model()
    model.save(tmp_path / "whole.zip")
    monkeypatch.setattr(codec, "MOST_ARRAY_BYTES", 7, raising=False)
    with pytest.raises(CheckpointError, match=r"whole\.zip: its settings and spaces have arrays of \d+ bytes, of"):
        DistributionalPPO.load(tmp_path / "whole.zip", device="cpu")
    with pytest.raises(CheckpointError, match=r"new\.zip: its settings and spaces have arrays"):
        model.save(tmp_path / "new.zip")
    assert not (tmp_path / "new.zip").exists()
