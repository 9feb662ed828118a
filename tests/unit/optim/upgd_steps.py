"""Steps that depend on their index alone, and comparison to the bit: shared by the tests of the UPGD optimizers."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rlcore.optim.upgd import UPGD, AdaptiveUPGD

BOTH = pytest.mark.parametrize("optimizer_class", [UPGD, AdaptiveUPGD])
SETTINGS: dict[str, Any] = {"lr": 0.1, "sigma": 0.1, "adaptive_noise": True, "beta_utility": 0.99}


def make_parameters(dtype: torch.dtype = torch.float32, count: int = 2) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn((3, 2), generator=generator).to(dtype)) for _ in range(count)]


def take_steps(optimizer: torch.optim.Optimizer, first: int, count: int) -> None:
    """Steps whose gradients and noise depend on the step index alone."""
    for step in range(first, first + count):
        generator = torch.Generator().manual_seed(100 + step)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
        torch.manual_seed(step)
        optimizer.step()


def parameters_of(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter.detach().clone() for group in optimizer.param_groups for parameter in group["params"]]


def snapshot(optimizer: torch.optim.Optimizer) -> tuple[list[Tensor], Any, Tensor]:
    return parameters_of(optimizer), copy.deepcopy(optimizer.state_dict()), torch.get_rng_state()


def assert_same(left: Any, right: Any) -> None:
    """Equal to the bit, through all containers."""
    assert type(left) is type(right)
    if isinstance(left, Tensor):
        assert left.dtype == right.dtype
        assert torch.equal(left, right)
    elif isinstance(left, dict):
        assert left.keys() == right.keys()
        for key in left:
            assert_same(left[key], right[key])
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            assert_same(one, other)
    else:
        assert left == right
