"""A value of a saved state is what the schema says, or the error names the place, what is needed and what is there."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from rlcore.errors import StateError
from rlcore.state.schema import (
    LARGEST_COUNT,
    describe,
    read_count,
    read_dict,
    read_list,
    read_number,
    read_record,
    read_tensor,
)


def refusal(read: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(StateError) as caught:
        read(*arguments, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (3, "3"),
        ("x" * 58, f"'{'x' * 58}'"),
        ("x" * 59, f"'{'x' * 56}..."),
        ([1, 2], "a list of 2 entries"),
        (torch.zeros(2, 3, dtype=torch.int64), "a tensor of torch.int64 with shape (2, 3)"),
    ],
)
def test_a_value_is_described_in_at_most_sixty_letters(value: object, shown: str) -> None:
    assert describe(value) == shown


def test_a_record_has_exactly_its_keys() -> None:
    assert read_record({"b": 1, "a": None}, "it", ("a", "b")) == {"a": None, "b": 1}


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (7, "it must be a dict with the keys ['a', 'b', 'c'], and is 7; it is damaged, or"),
        ({"b": 1}, "it does not fit: missing keys ['a', 'c'], unknown keys []; "),
        ({"a": 1, "b": 1, "c": 1, "z": 1, 5: 1}, "it does not fit: missing keys [], unknown keys ['5', 'z']; "),
        ({"a": 1, "b": 1, "y": 1}, "it does not fit: missing keys ['c'], unknown keys ['y']; "),
        (dict.fromkeys("wxyz"), "it does not fit: missing keys ['a', 'b', 'c'], unknown keys ['w', 'x', 'y'] ...; "),
    ],
)
def test_a_record_with_other_keys_is_refused_with_what_is_missing_and_what_is_unknown(state: Any, message: str) -> None:
    assert refusal(read_record, state, "it", ("c", "a", "b")).startswith(message)


def test_a_dict_and_a_list_are_given_back() -> None:
    entries, tensors = {"a": 1}, [torch.zeros(1), torch.zeros(2)]
    assert read_dict(entries, "it") is entries
    assert read_list(tensors, "it") is read_list(tensors, "it", 2) is tensors
    assert refusal(read_dict, [1], "it").startswith("it must be a dict, and is a list of 1 entries;")
    assert refusal(read_list, {}, "it").startswith("it must be a list, and is a dict of 0 entries;")
    assert refusal(read_list, [], "it", 2).startswith("it must be a list of 2 entries, and is a list of 0 entries;")
    assert refusal(read_list, (1, 2), "it", 2).startswith("it must be a list of 2 entries, and is (1, 2);")


@pytest.mark.parametrize(("value", "most", "least"), [(0, 5, 0), (5, 5, 0), (-1, 5, -1), (10**30, float("inf"), 0)])
def test_a_count_is_read_within_its_limits(value: int, most: float, least: int) -> None:
    assert read_count(value, "it", most, least) == value


@pytest.mark.parametrize("value", [-1, 6, True, 1.0, None, "1"])
def test_what_is_no_count_is_refused_with_the_limits(value: Any) -> None:
    assert refusal(read_count, value, "it", 5).startswith(f"it must be an integer from 0 to 5, and is {value!r};")


def test_a_count_is_at_most_what_a_float_holds_exactly() -> None:
    assert read_count(LARGEST_COUNT, "it") == 2**53
    assert "from 0 to 9007199254740992, and is 9007199254740993;" in refusal(read_count, 2**53 + 1, "it")
    assert refusal(read_count, -2, "it", float("inf"), -1).startswith(
        "it must be an integer of at least -1, and is -2;"
    )


@pytest.mark.parametrize("value", [0, 1, 0.5])
def test_a_number_is_read_as_a_float(value: float) -> None:
    read = read_number(value, "it", 0.0, 1.0)
    assert (type(read), read) == (float, value)
    assert read_number(-(10**300), "it") == -1e300


def test_the_largest_float_is_a_number() -> None:
    assert read_number(-sys.float_info.max, "it") == -sys.float_info.max


@pytest.mark.parametrize("value", [-0.5, 1.5, float("nan"), float("inf"), True, None, "1", 10**400])
def test_what_is_no_number_within_the_limits_is_refused(value: Any) -> None:
    assert refusal(read_number, value, "it", 0.0, 1.0).startswith(
        f"it must be a finite number from 0 to 1, and is {describe(value)};"
    )


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan"), -(10**400)])
def test_a_number_without_limits_is_finite(value: Any) -> None:
    assert refusal(read_number, value, "it").startswith("it must be a finite number, and is ")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_tensor_is_read_of_either_float_type_where_none_is_named(dtype: torch.dtype) -> None:
    value = torch.tensor([0.0, 2.0], dtype=dtype)
    assert read_tensor(value, "it", (2,), least=0.0) is value


@pytest.mark.parametrize(
    ("value", "dtypes", "expected"),
    [
        (torch.zeros(2).half(), (torch.float32, torch.float64), "torch.float32 or torch.float64"),
        (torch.zeros(2).half(), (torch.int64,), "torch.int64"),
        (torch.zeros(3), (torch.float32,), "torch.float32"),
        (torch.zeros(2, dtype=torch.int64), None, "floating point numbers"),
        ([0.0, 0.0], None, "floating point numbers"),
    ],
)
def test_another_tensor_is_refused_with_what_was_expected_and_what_came(value: Any, dtypes: Any, expected: str) -> None:
    message = f"it must be a tensor of {expected} with shape (2,), and is {describe(value)};"
    assert refusal(read_tensor, value, "it", (2,), dtypes).startswith(message)


def test_a_tensor_of_unusable_numbers_is_refused() -> None:
    spoilt = torch.tensor([0.0, torch.nan])
    assert refusal(read_tensor, spoilt, "it", (2,)).startswith("it holds NaN or infinity;")
    assert read_tensor(spoilt, "it", (2,), finite=False) is spoilt
    low = torch.tensor([0.5, 0.25])
    assert refusal(read_tensor, low, "it", (2,), least=0.5).startswith("it holds a number below 0.5;")
    assert read_tensor(low, "it", (2,), least=0.25) is low
    assert read_tensor(torch.zeros(2).half(), "it", (2,), None).dtype == torch.float16
