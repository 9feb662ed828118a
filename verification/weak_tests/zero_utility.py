"""A step without any utility, looked at through a comparison that NaN never fails."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rlcore import UPGD, AdaptiveUPGD

LARGEST_CHANGE = 1.0


@pytest.mark.parametrize("optimizer_class", [UPGD, AdaptiveUPGD])
def test_a_step_with_a_zero_gradient_changes_little(optimizer_class: type[torch.optim.Optimizer]) -> None:
    parameter = nn.Parameter(torch.ones(4))
    parameter.grad = torch.zeros(4)
    optimizer_class([parameter], lr=1e-3).step()  # type: ignore[call-arg]
    change = (parameter.detach() - 1.0).abs().max().item()
    if change > LARGEST_CHANGE:
        pytest.fail(f"max change: {change}")
