"""A saved state whose utilities follow parameters that something else has multiplied."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from rlcore.optim.upgd import UPGD
from rlcore.optim.upgd_step import with_rescaled_utilities
from tests.unit.optim.upgd_steps import assert_same, make_parameters, take_steps


def stepped(dtype: torch.dtype = torch.float32) -> UPGD:
    """Two groups of two parameters each."""
    tensors = make_parameters(dtype, count=4)
    optimizer = UPGD([{"params": tensors[:2]}, {"params": tensors[2:], "lr": 0.5}], lr=0.1)
    take_steps(optimizer, 0, 2)
    return optimizer


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_only_the_utilities_of_the_chosen_parameters_are_multiplied(dtype: torch.dtype) -> None:
    optimizer = stepped(dtype)
    saved = optimizer.state_dict()
    expected = copy.deepcopy(saved)
    for number in (1, 2):
        expected["state"][number]["utility"] *= 4.0
    chosen = [optimizer.param_groups[0]["params"][1], optimizer.param_groups[1]["params"][0]]
    assert_same(with_rescaled_utilities(saved, optimizer.param_groups, chosen, 4.0), expected)


def test_the_given_state_stays_as_it_was() -> None:
    optimizer = stepped()
    saved = copy.deepcopy(optimizer.state_dict())
    before = copy.deepcopy(saved)
    with_rescaled_utilities(saved, optimizer.param_groups, optimizer.param_groups[0]["params"], 4.0)
    assert_same(saved, before)


@pytest.mark.parametrize("utility", [None, "1.0"])
def test_a_chosen_parameter_without_a_utility_is_passed_over(utility: Any) -> None:
    optimizer = stepped()
    saved = copy.deepcopy(optimizer.state_dict())
    del saved["state"][0], saved["state"][1]["utility"]
    if utility is not None:
        saved["state"][1]["utility"] = utility
    expected = copy.deepcopy(saved)
    expected["state"][2]["utility"] *= 4.0
    chosen = [*optimizer.param_groups[0]["params"], optimizer.param_groups[1]["params"][0]]
    assert_same(with_rescaled_utilities(saved, optimizer.param_groups, chosen, 4.0), expected)


def test_a_state_of_other_parameters_is_refused() -> None:
    optimizer = stepped()
    fewer = UPGD(make_parameters(count=3))
    with pytest.raises(ValueError, match="shorter"):
        with_rescaled_utilities(optimizer.state_dict(), fewer.param_groups, fewer.param_groups[0]["params"], 4.0)


def test_parameters_are_chosen_by_identity_and_not_by_their_values() -> None:
    twins = [nn.Parameter(torch.ones(2)) for _ in range(2)]
    optimizer = UPGD(twins)
    for twin in twins:
        twin.grad = torch.ones(2)
    optimizer.step()
    state = with_rescaled_utilities(optimizer.state_dict(), optimizer.param_groups, twins[1:], 4.0)["state"]
    torch.testing.assert_close(state[1]["utility"], 4.0 * state[0]["utility"])


def test_utilities_saved_in_half_precision_have_the_range_of_the_state() -> None:
    optimizer = stepped()
    saved = copy.deepcopy(optimizer.state_dict())
    saved["state"][0]["utility"] = torch.full_like(saved["state"][0]["utility"], 6e4).half()
    chosen = optimizer.param_groups[0]["params"][:1]
    rescaled = with_rescaled_utilities(saved, optimizer.param_groups, chosen, 4.0)["state"][0]["utility"]
    assert rescaled.unique().tolist() == [4.0 * float(torch.tensor(6e4).half())]
