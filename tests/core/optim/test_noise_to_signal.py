"""The ratio read from what a step leaves behind is that of the noise and the direction that the step itself used."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from rlcore import UPGD, AdaptiveUPGD
from rlcore.optim.upgd_step import noise_to_signal

SIZES = [(40, 30), (50,)]
KINDS = {
    "UPGD": (UPGD, {"sigma": 0.3}),
    "UPGD, adaptive noise": (UPGD, {"sigma": 0.3, "adaptive_noise": True, "noise_beta": 0.5}),
    "UPGD, least noise": (UPGD, {"sigma": 1e-4, "adaptive_noise": True, "min_noise_std": 0.5}),
    "AdaptiveUPGD": (AdaptiveUPGD, {"sigma": 0.3}),
    "AdaptiveUPGD, adaptive noise": (AdaptiveUPGD, {"sigma": 0.3, "adaptive_noise": True, "betas": (0.5, 0.7)}),
    "AdaptiveUPGD, large eps": (AdaptiveUPGD, {"sigma": 0.3, "eps": 1.0}),
}


def stepped(optimizer_class: Any, settings: dict[str, Any], scale: float = 1.0) -> Any:
    """An optimizer after three steps; the weights are 0 before each, so that the gate is 0.5 throughout."""
    generator = torch.Generator().manual_seed(1)
    parameters = [torch.zeros(size, dtype=torch.float64).requires_grad_() for size in SIZES]
    optimizer = optimizer_class(parameters, lr=1.0, weight_decay=0.0, seed=5, **settings)
    for step in range(1, 4):
        for index, parameter in enumerate(parameters):
            parameter.data.zero_()
            parameter.grad = torch.randn(parameter.shape, generator=generator).double() * scale * step * (1 + 9 * index)
        optimizer.step()
    return optimizer


@pytest.mark.parametrize("absent", [None, 0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_the_ratio_is_that_of_the_noise_and_the_direction_of_the_last_step(kind: str, absent: int | None) -> None:
    """Over what had a gradient. The noise is what two runs differ in; its RMS over n draws is off by 1/sqrt(2n)."""
    optimizer_class, settings = KINDS[kind]
    noisy, silent = stepped(optimizer_class, settings), stepped(optimizer_class, {**settings, "sigma": 0.0})
    parameters = noisy.param_groups[0]["params"]
    pairs = [(a.detach(), b.detach()) for a, b in zip(parameters, silent.param_groups[0]["params"], strict=True)]
    if absent is not None:
        pairs.pop(absent)
        parameters[absent].grad = None
        noisy.add_param_group({"params": [torch.ones(1000, requires_grad=True)]})
    noise = sum(float((one - other).square().sum()) for one, other in pairs)
    signal = sum(float(other.square().sum()) for _, other in pairs)
    draws = 50 if absent == 0 else 1200
    assert noise_to_signal(noisy) == pytest.approx(math.sqrt(noise / signal), rel=4 / math.sqrt(2 * draws))


def test_the_ratio_may_be_large_and_is_zero_without_noise() -> None:
    parameter = torch.ones(2, requires_grad=True)
    optimizer = UPGD([parameter], sigma=0.5)
    parameter.grad = torch.tensor([3e-3, 4e-3])
    optimizer.step()
    assert noise_to_signal(optimizer) == pytest.approx(0.5 * math.sqrt(2) / 5e-3)
    assert noise_to_signal(stepped(UPGD, {"sigma": 0.0, "adaptive_noise": True})) == 0.0


@pytest.mark.parametrize("optimizer_class", [UPGD, AdaptiveUPGD])
def test_there_is_no_ratio_without_a_step_under_the_present_settings_or_a_direction(optimizer_class: Any) -> None:
    parameter = torch.ones(3, requires_grad=True)
    optimizer = optimizer_class([parameter])
    parameter.grad = torch.zeros(3)
    assert noise_to_signal(optimizer) is None
    optimizer.step()
    assert noise_to_signal(optimizer) is None
    parameter.grad = torch.ones(3)
    optimizer.step()
    assert noise_to_signal(optimizer) is not None
    optimizer.param_groups[0]["adaptive_noise"] = True
    assert noise_to_signal(optimizer) is None
    assert noise_to_signal(torch.optim.SGD([parameter], lr=0.1)) is None
