"""What document 000 planned of noise and scaling: how loud the noise is beside the step when gradients are scaled.

Measured on the weights: the same step with and without noise, from one generator.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rlcore import UPGD, AdaptiveUPGD
from rlcore.optim.upgd_step import noise_to_signal

SIGMA = 0.01
STEPS = 20


def gradients(scale: float) -> list[Tensor]:
    """A history of noisy gradients, all scaled alike, as by a constant factor."""
    generator = torch.Generator().manual_seed(3)
    return [scale * (0.5 + torch.randn(400, generator=generator)) for _ in range(STEPS)]


def walk(
    optimizer_class: type[UPGD] | type[AdaptiveUPGD], history: list[Tensor], **settings: Any
) -> tuple[Tensor, Any]:
    """What the last step changed, and the optimizer; the weights stand still before each step."""
    torch.manual_seed(0)
    start = torch.linspace(-1.0, 1.0, 400)
    weight = nn.Parameter(start.clone())
    optimizer = optimizer_class([weight], lr=0.1, weight_decay=0.0, **settings)
    for gradient in history:
        with torch.no_grad():
            weight.copy_(start)
        weight.grad = gradient.clone()
        optimizer.step()
    return (weight.detach() - start).double(), optimizer


def loudness(optimizer_class: type[UPGD] | type[AdaptiveUPGD], scale: float, **settings: Any) -> float:
    """Norm of what noise added to the last step, over the norm of the step without it."""
    quiet, _ = walk(optimizer_class, gradients(scale), sigma=0.0)
    noisy, optimizer = walk(optimizer_class, gradients(scale), sigma=SIGMA, **settings)
    ratio = float((noisy - quiet).norm() / quiet.norm())
    assert noise_to_signal(optimizer) == pytest.approx(ratio, rel=0.25)
    return ratio


def test_upgd_fixed_noise_is_ten_times_as_loud_at_a_tenth_of_the_gradient() -> None:
    assert loudness(UPGD, 0.1) == pytest.approx(10 * loudness(UPGD, 1.0), rel=1e-2)


def test_adaptive_upgd_fixed_noise_keeps_its_ratio() -> None:
    """m / sqrt(v) does not know the scale, so there is nothing to mend."""
    ratios = [loudness(AdaptiveUPGD, scale) for scale in (1.0, 0.1, 0.01)]
    assert ratios == pytest.approx([ratios[0]] * 3, rel=1e-2)


@pytest.mark.parametrize("optimizer_class", [UPGD, AdaptiveUPGD])
def test_adaptive_noise_keeps_its_ratio(optimizer_class: Any) -> None:
    ratios = [loudness(optimizer_class, scale, adaptive_noise=True) for scale in (1.0, 0.1, 0.01)]
    assert ratios == pytest.approx([ratios[0]] * 3, rel=1e-2)


def test_adaptive_noise_is_sigma_beside_a_steady_step_from_the_first_on_whatever_the_size() -> None:
    for size in (4, 4000):
        for steps in (1, 5):
            weight = nn.Parameter(torch.zeros(size))
            optimizer = UPGD([weight], lr=0.1, sigma=SIGMA, adaptive_noise=True)
            for _ in range(steps):
                weight.grad = torch.full((size,), 0.3)
                optimizer.step()
            assert noise_to_signal(optimizer) == pytest.approx(SIGMA, rel=1e-4)


def test_adaptive_noise_does_not_fall_below_its_floor() -> None:
    loud = [loudness(UPGD, scale, adaptive_noise=True, min_noise_std=1e-4) for scale in (1e-2, 1e-3)]
    assert loud[1] == pytest.approx(10 * loud[0], rel=0.3)
