"""The defaults of variance gradient scaling: one set, in three signatures, and each of them in effect."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rlcore.optim.scaler import VarianceGradientScaler
from rlcore.optim.settings import ScalerSettings
from rlcore.ppo.settings import PPOSettings


def test_scaler_and_model_have_the_same_defaults() -> None:
    scaler = VarianceGradientScaler([nn.Parameter(torch.zeros(1))])
    assert scaler.settings == ScalerSettings()
    names = {name for name in ScalerSettings.model_fields if name != "enabled"}
    of_model = {name: PPOSettings.model_fields[f"vgs_{name}"].default for name in names}
    assert of_model == {name: getattr(ScalerSettings(), name) for name in names}


def test_the_cap_lets_the_factor_fall_to_the_floor() -> None:
    parameter = nn.Parameter(torch.zeros(1))
    scaler = VarianceGradientScaler([parameter], warmup_steps=0)
    for step in range(400):
        parameter.grad = torch.tensor([(-1.0) ** step])
        scaler.update_statistics()
    assert scaler.get_scaling_factor() == pytest.approx(scaler.settings.min_scaling_factor)
