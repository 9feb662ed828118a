"""The third test of document 004's plan: what the scaler says of a pattern whose mean is zero."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rlcore import VarianceGradientScaler
from rlcore.optim.gradient_variance import Estimator

PATTERN = [0.5, -0.5, 0.5, -0.5]


def test_vgs_variance_semantics() -> None:
    """As the document has it; ``update_statistics()`` is taken to measure and to commit, as it does here."""
    parameter = nn.Parameter(torch.zeros(4))
    scaler = VarianceGradientScaler([parameter])
    for _ in range(10):
        parameter.grad = torch.tensor(PATTERN)
        scaler.update_statistics()
    assert scaler.get_normalized_variance() < 0.01


@pytest.mark.parametrize("estimator", ["mean", "spatial", "element", "total"])
def test_vgs_variance_semantics_without_a_step(estimator: Estimator) -> None:
    """As the audited system could run it: ``step()``, which commits what was measured, is never called."""
    parameter = nn.Parameter(torch.zeros(4))
    scaler = VarianceGradientScaler([parameter], estimator=estimator)
    for _ in range(10):
        parameter.grad = torch.tensor(PATTERN)
        scaler.scale_gradients()
    assert scaler.get_normalized_variance() < 0.01
