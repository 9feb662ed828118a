"""A malformed setting of a model file is one error, which names the setting and shows what it holds, cut where long."""

from __future__ import annotations

import re
from typing import Any, cast

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlcore.checkpoint import codec
from rlcore.errors import CheckpointError
from rlcore.types import StateDict

ARRAY: dict[str, Any] = {"dtype": "float32", "shape": [2], "bytes": torch.zeros(8, dtype=torch.uint8)}
FLAGS = {"dtype": "bool", "shape": [2], "bytes": torch.ones(2, dtype=torch.uint8)}
BOX = {codec.KIND: "Box", "low": ARRAY, "high": ARRAY, "bounded_below": FLAGS, "bounded_above": FLAGS}
MALFORMED: dict[str, tuple[Any, str]] = {
    "unknown kind": ({codec.KIND: "Graph"}, "the unknown kind 'Graph'"),
    "kind that is no text": ({codec.KIND: [1]}, "the unknown kind [1]"),
    "missing entry": ({codec.KIND: "Discrete", "n": 3}, "a Discrete that cannot"),
    "extra entry": ({codec.KIND: "tuple", "items": [], "seed": 1}, "a tuple that cannot"),
    "entry of a wrong type": ({codec.KIND: "tuple", "items": 3}, "3 is not of the type list"),
    "discrete of no elements": (
        {codec.KIND: "Discrete", "n": 0, "start": 0, "dtype": "int64"},
        "a Discrete that cannot",
    ),
    "discrete of a float": (
        {codec.KIND: "Discrete", "n": 2.5, "start": 0, "dtype": "int64"},
        "2.5 is not of the type int",
    ),
    "schedule of a text": ({codec.KIND: "ConstantSchedule", "val": "0.1"}, "'0.1' is not of the type float"),
    "schedule of nothing": ({codec.KIND: "FloatSchedule", "value_schedule": None}, "a FloatSchedule that cannot"),
    "unregistered class": (
        {codec.KIND: "class", "name": "os.system"},
        "the class 'os.system', which is not registered",
    ),
    "class without a name": ({codec.KIND: "class"}, "the class None"),
    "dtype that is another thing": ({codec.KIND: "torch.dtype", "name": "load"}, "is not of the type dtype"),
    "device that is none": ({codec.KIND: "torch.device", "name": "toaster"}, "a torch.device that cannot"),
    "too few bytes": ({**BOX, "low": {**ARRAY, "shape": [3]}}, "a Box that cannot"),
    "bytes of another dtype": ({**BOX, "low": {**ARRAY, "bytes": torch.zeros(2)}}, "must be a tensor of torch.uint8"),
    "bytes in rows": ({**BOX, "low": {**ARRAY, "bytes": ARRAY["bytes"].view(2, 4)}}, "with one dimension"),
    "bytes that are none": ({**BOX, "low": {**ARRAY, "bytes": 3}}, "3 is not of the type Tensor"),
    "object dtype": ({**BOX, "low": {**ARRAY, "dtype": "object"}}, "'object' is not the name of a numeric dtype"),
    "dtype that is no text": ({**BOX, "low": {**ARRAY, "dtype": 3}}, "3 is not of the type str"),
    "negative size": ({**BOX, "low": {**ARRAY, "shape": [-1]}}, "[-1] is not a shape"),
    "multi binary of a flag": ({codec.KIND: "MultiBinary", "n": True}, "a MultiBinary that cannot"),
    "array of complex numbers": (
        {codec.KIND: "numpy.ndarray", **ARRAY, "dtype": "complex64", "shape": [1]},
        "'complex64' is not the name of a numeric dtype",
    ),
    "bounds of two dtypes": ({**BOX, "high": {**ARRAY, "dtype": "int32"}}, "the bounds differ in shape or dtype"),
    "flags of another shape": ({**BOX, "bounded_below": {**FLAGS, "shape": [1, 2]}}, "the bounds differ"),
    "bounds of two shapes": ({**BOX, "low": {**ARRAY, "shape": [1, 2]}}, "the bounds differ"),
    "array that is none": ({**BOX, "low": 3}, "a Box that cannot"),
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


DIGITS = "1" * 95
SHOWN: list[tuple[Any, str, str]] = [
    ({codec.KIND: "placeholder", "description": "x" * 119}, "'", "x" * 116),
    ({codec.KIND: "x" * 119}, "'", "x" * 116),
    ({codec.KIND: "tuple", "items": int(DIGITS)}, "'", f"{DIGITS} is not of the type list"[:116]),
]


@pytest.mark.parametrize(("value", "start", "shown"), SHOWN, ids=["description", "kind", "error"])
def test_whatever_the_file_supplies_is_cut_to_120_characters(value: Any, start: str, shown: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        codec.decode(value, "gamma", {})
    assert f" {start}{shown}..." in str(caught.value).replace("(", " ")


def test_the_name_of_a_setting_that_is_nested_too_deep_is_cut_to_120_characters() -> None:
    with pytest.raises(CheckpointError) as caught:
        codec.encode(None, "." * 51 + "x" * 68)
    assert f" '{'.' * 51}{'x' * 65}... is nested" in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [
        {codec.KIND: "numpy.ndarray", **ARRAY, "dtype": ["x" * 90]},
        {codec.KIND: "numpy.ndarray", **ARRAY, "shape": "x" * 90},
        {codec.KIND: "ConstantSchedule", "val": "x" * 90},
    ],
    ids=["dtype", "shape", "number"],
)
def test_ninety_characters_of_what_cannot_be_built_are_shown(value: Any) -> None:
    with pytest.raises(CheckpointError, match="x" * 90):
        codec.decode(value, "gamma", {})


def test_a_text_from_the_file_is_shown_escaped_and_cut() -> None:
    with pytest.raises(CheckpointError) as caught:
        codec.decode({codec.KIND: "class", "name": "\x1b[31m" + "x" * 5000}, "gamma", {})

    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 500
