"""What the statistics of a tensor take, beside what the tensor takes."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
from torch import nn

from rlcore import VarianceGradientScaler
from tests.support.training import tensors_in


def memory(estimator: Any, elements: int) -> tuple[int, int]:
    """Bytes of a scaler without its parameters, and numbers in its state, after a step."""
    parameter = nn.Parameter(torch.zeros(elements))
    scaler = VarianceGradientScaler([parameter], estimator=estimator)
    parameter.grad = torch.ones(elements)
    scaler.update_statistics()
    return len(pickle.dumps(scaler)), sum(tensor.numel() for tensor in tensors_in(scaler.state_dict()))


@pytest.mark.parametrize("estimator", ["mean", "spatial", "total"])
def test_statistics_take_the_same_memory_whatever_the_size_of_the_tensor(estimator: str) -> None:
    bytes_of_few, numbers_of_few = memory(estimator, 1_000)
    bytes_of_many, numbers_of_many = memory(estimator, 1_000_000)
    assert bytes_of_many < bytes_of_few + 200
    assert numbers_of_many == numbers_of_few
