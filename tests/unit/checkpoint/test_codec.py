"""Settings survive a model file: through real torch.save and torch.load(weights_only=True), equal in what they do."""

from __future__ import annotations

import copy
import inspect
import io
import math
import re
from collections import OrderedDict
from typing import Any, cast

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from stable_baselines3.common.torch_layers import CombinedExtractor, FlattenExtractor, NatureCNN
from stable_baselines3.common.utils import ConstantSchedule, FloatSchedule, LinearSchedule

from rlcore.checkpoint import codec
from rlcore.errors import CheckpointError, SettingError
from rlcore.types import StateDict


def through_file(value: object, field: str = "setting", custom_objects: dict[str, object] | None = None) -> Any:
    """Encode, write, read without executing anything, decode."""
    file = io.BytesIO()
    torch.save(codec.encode(value, field), file)
    file.seek(0)
    return codec.decode(torch.load(file, weights_only=True), field, custom_objects or {})


class Unregistered(torch.nn.Module):
    pass


PLAIN: list[object] = [
    None,
    True,
    False,
    0,
    -7,
    2**70,
    0.1,
    math.inf,
    "",
    "text",
    [],
    {},
    (),
    [1, [2.5, None]],
    (1, ("a",), []),
]


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_plain_values_come_back_equal_and_of_the_same_type(value: object) -> None:
    restored = through_file(value)

    assert restored == value
    assert type(restored) is type(value)


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


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint16", "uint64", "bool"])
def test_arrays_keep_dtype_shape_and_content(dtype: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)

    restored = through_file(array)

    assert restored.dtype == array.dtype
    np.testing.assert_array_equal(restored, array)
    assert restored.shape == (2, 3)


def test_an_array_of_nothing_keeps_its_shape() -> None:
    assert through_file(np.zeros((0, 3))).shape == (0, 3)


def test_big_endian_arrays_come_back_as_the_same_numbers() -> None:
    np.testing.assert_array_equal(through_file(np.array([1, 256], dtype=">i4")), [1, 256])


def test_a_tensor_is_stored_without_its_graph_and_without_sharing_memory() -> None:
    tensor = torch.ones(2, dtype=torch.bfloat16, requires_grad=True)

    encoded = codec.encode(tensor, "setting")
    with torch.no_grad():
        tensor.zero_()

    assert isinstance(encoded, torch.Tensor)
    assert not encoded.requires_grad
    assert encoded.dtype == torch.bfloat16
    assert encoded.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("value", [torch.device("cpu"), torch.device("cuda:1"), torch.float16, torch.int64], ids=str)
def test_devices_and_dtypes_come_back(value: object) -> None:
    assert through_file(value) == value


SPACES = [
    spaces.Box(-1.5, 2.5, (3,), np.float32),
    spaces.Box(np.array([-np.inf, 0.0]), np.array([1.0, np.inf]), dtype=np.float64),
    spaces.Box(0, 255, (4, 4, 3), np.uint8),
    spaces.Box(-2, 5, (), np.int64),
    spaces.Box(0.0, 1.0, (2,), np.float16),
    spaces.Discrete(5),
    spaces.Discrete(3, start=-1),
    spaces.MultiDiscrete([2, 3, 4]),
    spaces.MultiDiscrete(np.array([[2, 3], [4, 5]]), dtype=np.int32, start=np.array([[0, 1], [2, 3]])),
    spaces.MultiBinary(4),
    spaces.MultiBinary([2, 3]),
    spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Box(0, 1, (2,))}),
    spaces.Tuple([spaces.Discrete(2), spaces.Dict({"x": spaces.MultiBinary(2)})]),
]


@pytest.mark.parametrize("space", SPACES, ids=lambda space: " ".join(repr(space).split()))
def test_spaces_come_back_equal_and_sample_alike(space: spaces.Space[Any]) -> None:
    restored = through_file(space)

    assert restored == space
    assert repr(restored) == repr(space)
    assert restored.dtype == space.dtype
    space.seed(3)
    restored.seed(3)
    for _ in range(5):
        np.testing.assert_equal(restored.sample(), space.sample())


@pytest.mark.skipif("dtype" not in inspect.signature(spaces.Discrete).parameters, reason="Gymnasium of one dtype")
def test_a_discrete_space_keeps_its_dtype() -> None:
    space = spaces.Discrete(3, start=-2, dtype=np.int32)

    assert through_file(space) == space
    assert through_file(space).dtype == np.int32


def test_a_dict_space_keeps_the_order_of_its_keys() -> None:
    space = spaces.Dict(OrderedDict(b=spaces.Discrete(2), a=spaces.Discrete(3)))

    assert list(through_file(space).spaces) == ["b", "a"]


def test_an_unbounded_integer_box_stays_unbounded() -> None:
    restored = through_file(spaces.Box(-np.inf, 9, (2,), np.int64))

    assert restored.bounded_below.tolist() == [False, False]
    assert restored.bounded_above.tolist() == [True, True]


def test_the_generator_of_a_space_is_not_stored() -> None:
    seeded, fresh = spaces.Discrete(1000, seed=1), spaces.Discrete(1000)
    seeded.sample()

    assert codec.encode(seeded, "space") == codec.encode(fresh, "space")
    assert through_file(seeded)._np_random is None


SCHEDULES = [
    ConstantSchedule(0.3),
    LinearSchedule(1e-3, 1e-5, 0.4),
    FloatSchedule(0.25),
    FloatSchedule(LinearSchedule(1.0, 0.1, 0.5)),
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_schedules_come_back_with_the_same_values(schedule: Any) -> None:
    restored = through_file(schedule)

    assert type(restored) is type(schedule)
    assert repr(restored) == repr(schedule)
    for progress in (1.0, 0.75, 0.5, 0.1, 0.0):
        assert restored(progress) == schedule(progress)


class Ramp:
    """Built from two numbers, which it keeps."""

    def __init__(self, start: float, end: float) -> None:
        self.start, self.end = start, end


def test_what_is_built_from_numbers_comes_back_and_each_of_them_can_be_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    form = codec._numbers("Ramp", Ramp, ("start", "end"))
    monkeypatch.setitem(codec._FORMS, Ramp, form)
    monkeypatch.setitem(codec._KINDS, form.kind, form)

    restored = through_file(Ramp(1.0, 0.25))
    replaced = through_file(Ramp(1.0, 0.25), "ramp", {"ramp.end": 0.5})

    assert (type(restored), vars(restored)) == (Ramp, {"start": 1.0, "end": 0.25})
    assert vars(replaced) == {"start": 1.0, "end": 0.5}
    assert codec.encode(Ramp(1.0, 0.25), "ramp") == {codec.KIND: "Ramp", "start": 1.0, "end": 0.25}


@pytest.mark.parametrize(
    "cls",
    [
        *(getattr(torch.nn, name) for name in ("Tanh", "ReLU", "ELU", "GELU", "SiLU", "LeakyReLU", "Mish", "Identity")),
        *(getattr(torch.optim, name) for name in ("Adam", "AdamW", "SGD", "RMSprop")),
        FlattenExtractor,
        CombinedExtractor,
        NatureCNN,
    ],
    ids=lambda cls: cls.__name__,
)
def test_registered_classes_come_back_by_name(cls: type) -> None:
    encoded = codec.encode(cls, "setting")

    assert isinstance(encoded, dict)
    assert isinstance(encoded["name"], str)
    assert through_file(cls) is cls


def test_a_class_can_be_registered_and_then_needs_no_custom_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "_CLASSES", dict(codec._CLASSES))
    monkeypatch.setattr(codec, "_NAMES", dict(codec._NAMES))

    codec.register_class("tests.Unregistered", Unregistered)
    codec.register_class("tests.Unregistered", Unregistered)

    assert through_file(Unregistered) is Unregistered


def test_a_name_or_a_class_is_registered_once() -> None:
    with pytest.raises(SettingError, match=r"'torch\.nn\.Tanh' already stands for Tanh.*Unregistered") as taken:
        codec.register_class("torch.nn.Tanh", Unregistered)
    with pytest.raises(SettingError, match=r"Tanh is already registered as 'torch\.nn\.Tanh'") as second:
        codec.register_class("other.Tanh", torch.nn.Tanh)
    assert taken.value.setting == second.value.setting == "name"
    assert through_file(torch.nn.Tanh) is torch.nn.Tanh


@pytest.mark.parametrize(
    ("value", "described"),
    [
        (lambda progress: progress, "function .*<lambda>"),
        (Unregistered, "the class .*Unregistered"),
        (Unregistered(), "an object of the class .*Unregistered"),
        (math.sqrt, "the function math.sqrt"),
        *((np.array(content), r"an object of the class numpy\.ndarray") for content in (["a"], [None], [1j], [b"a"])),
        (np.array(["2000-01-01"], "datetime64[D]"), r"an object of the class numpy\.ndarray"),
        ({(1, 2): 3}, "an object of the class builtins.dict"),
        ({codec.KIND: "class", "name": "torch.nn.Tanh"}, "an object of the class builtins.dict"),
    ],
    ids=lambda value: value.replace("\\", "") if isinstance(value, str) else "",
)
def test_what_no_file_can_hold_asks_for_a_custom_object(value: object, described: str) -> None:
    with pytest.raises(CheckpointError, match=f"'clip_range' was .*{described}.*custom_objects={{'clip_range': ...}}"):
        through_file(value, "clip_range")

    assert through_file(value, "clip_range", {"clip_range": 0.2}) == 0.2


ONE = lambda _: 1.0  # noqa: E731
ARRAY = np.arange(3.0)


@pytest.mark.parametrize("left", [ARRAY, [ARRAY, 1], {"a": (ARRAY,)}, torch.ones(2), 0.1, "a", None, ONE])
def test_what_a_file_would_hold_alike_is_the_same(left: Any) -> None:
    assert codec.same(*(codec.encode(each, "setting") for each in (left, copy.deepcopy(left))))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        *((ARRAY, other) for other in (np.arange(4.0), np.arange(3), -ARRAY, 1.0, [0.0, 1.0, 2.0], None)),
        *((torch.ones(2), other) for other in (torch.ones(3), torch.ones(2).double(), torch.zeros(2), 1.0)),
        *(({"a": ARRAY}, other) for other in ({}, {"b": ARRAY}, {"a": -ARRAY}, [ARRAY])),
        *(([1, 2], other) for other in ([1], [1, 3], (1, 2), "12")),
        *((["a", "b"], other) for other in ("ab", {"a": 1, "b": 2})),
        *((ONE, other) for other in (math.sqrt, 1.0, FloatSchedule(ONE))),
        (0.1, 0.2),
        ("a", None),
    ],
)
def test_what_a_file_would_hold_otherwise_is_not_the_same(left: Any, right: Any) -> None:
    left, right = (codec.encode(each, "setting") for each in (left, right))
    assert not codec.same(left, right)
    assert not codec.same(right, left)


def test_a_placeholder_shows_no_address_and_no_path() -> None:
    encoded = codec.encode(lambda: None, "setting")

    assert isinstance(encoded, dict)
    assert "0x" not in str(encoded["description"])
    assert "/" not in str(encoded["description"])


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


def test_a_custom_object_wins_over_a_malformed_value() -> None:
    assert codec.decode({codec.KIND: "nonsense"}, "gamma", {"gamma": 0.9}) == 0.9


ARRAY: dict[str, Any] = {"dtype": "float32", "shape": [2], "bytes": torch.zeros(8, dtype=torch.uint8)}
FLAGS = {"dtype": "bool", "shape": [2], "bytes": torch.ones(2, dtype=torch.uint8)}
BOX = {codec.KIND: "Box", "low": ARRAY, "high": ARRAY, "bounded_below": FLAGS, "bounded_above": FLAGS}
MALFORMED: dict[str, tuple[Any, str]] = {
    "unknown kind": ({codec.KIND: "Graph"}, "the unknown kind 'Graph'"),
    "kind that is no text": ({codec.KIND: [1]}, "the unknown kind [1]"),
    "missing entry": ({codec.KIND: "Discrete", "n": 3}, "a Discrete with the entries ['n']"),
    "extra entry": ({codec.KIND: "tuple", "items": [], "seed": 1}, "a tuple with the entries ['items', 'seed']"),
    "entry of a wrong type": ({codec.KIND: "tuple", "items": 3}, "3 is not of the type list"),
    "discrete of no elements": (
        {codec.KIND: "Discrete", "n": 0, "start": 0, "dtype": "int64"},
        "a Discrete that cannot",
    ),
    "discrete of a float": (
        {codec.KIND: "Discrete", "n": 2.5, "start": 0, "dtype": "int64"},
        "2.5 is not of the type int",
    ),
    "schedule of a text": ({codec.KIND: "ConstantSchedule", "val": "0.1"}, "'0.1' is not a number"),
    "schedule of nothing": ({codec.KIND: "FloatSchedule", "value_schedule": None}, "a FloatSchedule that cannot"),
    "unregistered class": (
        {codec.KIND: "class", "name": "os.system"},
        "the class 'os.system', which is not registered",
    ),
    "class without a name": ({codec.KIND: "class"}, "the class None"),
    "dtype that is another thing": ({codec.KIND: "torch.dtype", "name": "load"}, "torch has no dtype 'load'"),
    "device that is none": ({codec.KIND: "torch.device", "name": "toaster"}, "a torch.device that cannot"),
    "too few bytes": ({**BOX, "low": {**ARRAY, "shape": [3]}}, "a Box that cannot"),
    "bytes of another dtype": ({**BOX, "low": {**ARRAY, "bytes": torch.zeros(2)}}, "must be a tensor of torch.uint8"),
    "bytes in rows": ({**BOX, "low": {**ARRAY, "bytes": ARRAY["bytes"].view(2, 4)}}, "with one dimension"),
    "bytes that are none": ({**BOX, "low": {**ARRAY, "bytes": 3}}, "must be a tensor"),
    "object dtype": ({**BOX, "low": {**ARRAY, "dtype": "object"}}, "'object' is not the name of a numeric dtype"),
    "dtype that is no text": ({**BOX, "low": {**ARRAY, "dtype": 3}}, "3 is not the name of a numeric dtype"),
    "negative size": ({**BOX, "low": {**ARRAY, "shape": [-1]}}, "[-1] is not a shape"),
    "multi binary of a flag": ({codec.KIND: "MultiBinary", "n": True}, "True is not a shape"),
    "array of complex numbers": (
        {codec.KIND: "numpy.ndarray", **ARRAY, "dtype": "complex64", "shape": [1]},
        "'complex64' is not the name of a numeric dtype",
    ),
    "bounds of two dtypes": ({**BOX, "high": {**ARRAY, "dtype": "int32"}}, "the bounds differ in shape or dtype"),
    "flags of another shape": ({**BOX, "bounded_below": {**FLAGS, "shape": [1, 2]}}, "the bounds differ"),
    "bounds of two shapes": ({**BOX, "low": {**ARRAY, "shape": [1, 2]}}, "the bounds differ"),
    "array that is none": ({**BOX, "low": 3}, "3 is not of the type dict"),
    "dict space of no pairs": ({codec.KIND: "Dict", "spaces": [["a"]]}, "a Dict that cannot"),
    "tuple space of a number": ({codec.KIND: "Tuple", "items": [3]}, "a Tuple that cannot"),
    "a value that is not plain": ((1, 2), "a tuple, which a model file cannot hold"),
    "an array that is not encoded": (np.zeros(2), "a ndarray, which a model file cannot hold"),
}


@pytest.mark.parametrize(("value", "said"), MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_value_is_one_error_that_names_the_setting_and_what_it_holds(value: Any, said: str) -> None:
    with pytest.raises(CheckpointError, match="'gamma") as caught:
        codec.decode(value, "gamma", {})
    assert said in str(caught.value)


def test_a_box_from_parts_is_accepted_when_they_fit() -> None:
    """The malformed boxes above differ from this one in a single entry each."""
    assert codec.decode(cast("StateDict", BOX), "space", {}) == spaces.Box(0, 0, (2,), np.float32)


@pytest.mark.parametrize(("length", "shown"), [(118, "'" + 118 * "x" + "'"), (119, "'" + 116 * "x" + "...")])
def test_a_text_from_the_file_is_shown_up_to_120_characters(length: int, shown: str) -> None:
    with pytest.raises(CheckpointError, match=f"is the class {re.escape(shown)},"):
        codec.decode({codec.KIND: "class", "name": length * "x"}, "gamma", {})


def test_a_text_from_the_file_is_shown_escaped_and_cut() -> None:
    with pytest.raises(CheckpointError) as caught:
        codec.decode({codec.KIND: "class", "name": "\x1b[31m" + "x" * 5000}, "gamma", {})

    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_part_may_have_50_dots_in_its_path_and_no_more() -> None:
    value: Any = []
    for _ in range(50):
        value = [value]

    assert through_file(value) == value
    with pytest.raises(CheckpointError, match="nested more than 50 deep"):
        codec.encode([value, 1], "setting")


def test_a_list_that_contains_itself_is_one_error() -> None:
    value: list[object] = []
    value.append(value)

    with pytest.raises(CheckpointError, match=r"'gamma\.0\.0.*nested more than"):
        codec.encode(value, "gamma")


def test_a_file_of_endless_nesting_is_one_error() -> None:
    value: Any = []
    for _ in range(5000):
        value = [value]

    with pytest.raises(CheckpointError, match=r"'gamma\.0\.0.*nested more than"):
        codec.decode(value, "gamma", {})
