"""The utility's functions write into the memory that they are given."""

from __future__ import annotations

import torch

from rlcore.functional.utility import gate, weight_utility


def test_a_utility_is_written_into_the_memory_given() -> None:
    room = torch.empty(3)
    gradient, parameter = torch.tensor([1.0, -2.0, 0.0]), torch.tensor([3.0, 4.0, 5.0])
    result = weight_utility(gradient, parameter, out=room)
    assert result.data_ptr() == room.data_ptr()
    assert room.tolist() == [-3.0, 8.0, 0.0]


def test_a_gate_takes_the_memory_of_its_utility() -> None:
    utility = torch.tensor([-1.0, 0.0, 2.0])
    expected = torch.sigmoid(utility / 2.0)
    assert gate(utility, torch.tensor(2.0), out=utility).data_ptr() == utility.data_ptr()
    assert torch.equal(utility, expected)
