"""Settings survive a model file: through real torch.save and torch.load(weights_only=True), equal in what they do."""

from __future__ import annotations

import copy
import inspect
import io
import math
from collections import OrderedDict, defaultdict
from typing import Any

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


def test_a_part_of_a_dict_space_can_be_replaced_by_its_name() -> None:
    space = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Discrete(3)})

    replaced = through_file(space, "space", {"space.a": spaces.Discrete(9)})

    assert replaced == spaces.Dict({"a": spaces.Discrete(9), "b": spaces.Discrete(3)})


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


def test_a_number_of_a_schedule_can_be_replaced_by_its_name() -> None:
    replaced = through_file(LinearSchedule(1.0, 0.25, 0.5), "ramp", {"ramp.end": 0.5})
    assert vars(replaced) == {"start": 1.0, "end": 0.5, "end_fraction": 0.5}
    endless: Any = LinearSchedule(1.0, 0.25, 0.5)
    endless.start = endless
    with pytest.raises(CheckpointError, match=r"'ramp\.start\.start\.start.*nested more than"):
        codec.encode(endless, "ramp")


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
    with pytest.raises(SettingError, match=r"'torch\.nn\.Tanh' is the name of Tanh, and Unregistered") as taken:
        codec.register_class("torch.nn.Tanh", Unregistered)
    with pytest.raises(SettingError, match=r"Tanh has 'torch\.nn\.Tanh'; give one name") as second:
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
        (defaultdict(int, a=1), "an object of the class collections.defaultdict"),
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


def test_a_part_may_have_50_dots_in_its_path_and_no_more() -> None:
    value: Any = []
    for _ in range(50):
        value = [value]

    assert through_file(value) == value
    with pytest.raises(CheckpointError, match="nested more than 50 deep"):
        codec.encode([value, 1], "setting")


def containing_itself(kind: str) -> Any:
    value: Any = {"a": None} if kind == "dict" else [None, None]
    value["a" if kind == "dict" else 1] = (value,) if kind == "list of a tuple" else value
    return value


@pytest.mark.parametrize(("kind", "part"), [("list", "1"), ("dict", "a"), ("list of a tuple", "1.0")])
def test_what_contains_itself_is_one_error(kind: str, part: str) -> None:
    with pytest.raises(CheckpointError, match=rf"'gamma\.{part}\.{part}\.{part}.*nested more than"):
        codec.encode(containing_itself(kind), "gamma")
