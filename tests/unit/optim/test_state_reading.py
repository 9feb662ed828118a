"""What is read from a saved state is what it should be, or the error says which entry is something else, and what."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

from rlcore.errors import StateError
from rlcore.optim.gradient_variance import read_list, read_numbers
from rlcore.optim.state_reading import read_count, read_entries, read_tensor, show


def refusal(read: Any, *arguments: Any) -> str:
    with pytest.raises(StateError) as caught:
        read(*arguments)
    return str(caught.value)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (3, "3 (int)"),
        (None, "None (NoneType)"),
        ("x" * 58, f"'{'x' * 58}' (str)"),
        ("x" * 59, f"'{'x' * 56}... (str)"),
        (torch.zeros(2, 3, dtype=torch.int64), "a torch.int64 tensor of shape (2, 3)"),
    ],
)
def test_a_value_is_shown_in_at_most_sixty_letters_and_with_its_type(value: object, shown: str) -> None:
    assert show(value) == shown


def test_entries_are_those_that_were_asked_for() -> None:
    assert read_entries({"b": 1, "a": None}, ("a", "b"), "state of it") == {"a": None, "b": 1}


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (7, "state of it: expected a dict with the keys ['a', 'b', 'c'], got 7 (int)"),
        ({"b": 1}, "state of it does not fit: missing keys ['a', 'c'], unknown keys []. "),
        ({"a": 1, "b": 1, "c": 1, "z": 1, 5: 1}, "state of it does not fit: missing keys [], unknown keys ['z', 5]. "),
        ({"a": 1, "b": 1, "y": 1}, "state of it does not fit: missing keys ['c'], unknown keys ['y']. "),
    ],
)
def test_a_dict_with_other_keys_is_refused_with_what_is_missing_and_what_is_unknown(state: Any, message: str) -> None:
    assert refusal(read_entries, state, ("c", "a", "b"), "state of it").startswith(message)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_tensor_is_read_as_a_copy_of_either_float_type_where_none_is_named(dtype: torch.dtype) -> None:
    value = torch.tensor([0.0, 2.0], dtype=dtype, requires_grad=True)
    read = read_tensor(value, (2,), None, "it", 0.0)
    assert (read.dtype, read.tolist(), read.requires_grad) == (dtype, [0.0, 2.0], False)
    read.fill_(9.0)
    assert value.tolist() == [0.0, 2.0]


EITHER = "torch.float32 or torch.float64"


@pytest.mark.parametrize(
    ("value", "dtype", "expected", "got"),
    [
        (torch.zeros(2).half(), None, EITHER, "a torch.float16 tensor of shape (2,)"),
        (torch.zeros(2).half(), torch.int64, "torch.int64", "a torch.float16 tensor of shape (2,)"),
        (torch.zeros(3), None, EITHER, "a torch.float32 tensor of shape (3,)"),
        ([0.0, 0.0], None, EITHER, "[0.0, 0.0] (list)"),
    ],
)
def test_another_tensor_is_refused_with_what_was_expected_and_what_came(
    value: Any, dtype: Any, expected: str, got: str
) -> None:
    message = f"it: expected a {expected} tensor of shape (2,), got {got};"
    assert refusal(read_tensor, value, (2,), dtype, "it").startswith(message)


def test_a_tensor_of_unusable_numbers_is_refused() -> None:
    assert refusal(read_tensor, torch.tensor([0.0, torch.nan]), (2,), None, "it").startswith("it holds NaN or infinity")
    message = "it has elements below 0.5,"
    assert refusal(read_tensor, torch.tensor([0.5, 0.25]), (2,), None, "it", 0.5).startswith(message)


def test_numbers_are_float64_and_no_other() -> None:
    read = read_numbers(torch.tensor([1.0, 2.0], dtype=torch.float64), 2, "it")
    assert (read.dtype, read.tolist()) == (np.float64, [1.0, 2.0])
    message = "it: expected a torch.float64 tensor of shape (2,), got a torch.float32 tensor of shape (2,)"
    assert refusal(read_numbers, torch.zeros(2), 2, "it").startswith(message)
    assert "below 1.0" in refusal(read_numbers, torch.zeros(2, dtype=torch.float64), 2, "it", 1.0)


def test_a_list_of_another_length_or_type_is_refused_with_the_length_that_was_expected() -> None:
    tensors = [torch.zeros(1), torch.zeros(2)]
    assert read_list(tensors, 2, "it") is tensors
    for value, shown in ((tensors[:1], "[tensor([0.])] (list)"), ((1, 2), "(1, 2) (tuple)"), (5, "5 (int)")):
        assert re.match(rf"it: expected a list of 2 tensors.*{re.escape(shown)}", refusal(read_list, value, 2, "it"))


@pytest.mark.parametrize(("value", "maximum"), [(0, 0), (4, 5), (5, 5), (10**9, 10**9)])
def test_a_count_is_read_up_to_its_maximum(value: int, maximum: int) -> None:
    assert read_count(value, "it", maximum) == value


def test_a_count_is_read_up_to_what_a_float_holds_exactly() -> None:
    assert read_count(2**53, "it") == 2**53
    assert refusal(read_count, 2**53 + 1, "it").startswith(f"it: expected an int >= 0 and <= {2**53}, got {2**53 + 1}")


@pytest.mark.parametrize(
    ("value", "shown"), [(-1, "-1 (int)"), (6, "6 (int)"), (True, "True (bool)"), (1.0, "1.0 (float)")]
)
def test_what_is_no_count_is_refused_with_the_limits(value: Any, shown: str) -> None:
    assert refusal(read_count, value, "it", 5).startswith(f"it: expected an int >= 0 and <= 5, got {shown};")
