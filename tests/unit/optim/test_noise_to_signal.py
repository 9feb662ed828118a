"""The ratio read from what a step leaves behind is that of the noise and the direction that the step itself used."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from rlcore import UPGD, AdaptiveUPGD
from rlcore.optim.noise import noise_to_signal

SIZES = [(40, 30), (50,)]
KINDS = {
    "UPGD": (UPGD, {"sigma": 0.3}),
    "UPGD, adaptive noise": (UPGD, {"sigma": 0.3, "adaptive_noise": True, "noise_beta": 0.5}),
    "UPGD, least noise": (UPGD, {"sigma": 1e-4, "adaptive_noise": True, "min_noise_std": 0.5}),
    "AdaptiveUPGD": (AdaptiveUPGD, {"sigma": 0.3}),
    "AdaptiveUPGD, adaptive noise": (AdaptiveUPGD, {"sigma": 0.3, "adaptive_noise": True, "betas": (0.5, 0.7)}),
    "AdaptiveUPGD, large eps": (AdaptiveUPGD, {"sigma": 0.3, "eps": 1.0}),
}


def stepped(optimizer_class: Any, settings: dict[str, Any], scale: float = 1.0) -> tuple[Any, list[Any]]:
    """An optimizer after three steps, and (direction, standard deviation of its noise) of what the last one changed."""
    generator = torch.Generator().manual_seed(1)
    # float64, so that plain torch computes them.
    parameters = [torch.randn(size, generator=generator, dtype=torch.float64).requires_grad_() for size in SIZES]
    optimizer = optimizer_class(parameters, lr=1e-3, **settings)
    seen: list[Any] = []
    noise_stds = optimizer._noise_stds

    def recorded(part: Any) -> list[Any]:
        stds: list[Any] = noise_stds(part)
        directions = torch.split(part._direction(), [update.parameter.numel() for update in part.updates])
        seen.extend(zip(directions, map(float, stds), strict=True))
        return stds

    optimizer._noise_stds = recorded
    for step in range(1, 4):
        seen.clear()
        for index, parameter in enumerate(parameters):
            parameter.grad = torch.randn(parameter.shape, generator=generator).double() * scale * step * (1 + 9 * index)
        optimizer.step()
    return optimizer, seen


@pytest.mark.parametrize("optimizer_class", [UPGD, AdaptiveUPGD])
def test_there_is_no_ratio_between_a_change_of_settings_and_the_next_step(optimizer_class: Any) -> None:
    optimizer, _ = stepped(optimizer_class, {"sigma": 0.3})
    optimizer.param_groups[0]["adaptive_noise"] = True
    assert noise_to_signal(optimizer) is None
    optimizer.step()
    assert noise_to_signal(optimizer) is not None


@pytest.mark.parametrize("kind", KINDS)
def test_the_ratio_is_that_of_the_noise_and_the_direction_of_the_last_step(kind: str) -> None:
    optimizer, seen = stepped(*KINDS[kind])
    noise = sum(direction.numel() * std**2 for direction, std in seen)
    signal = sum(float(direction.square().sum()) for direction, _ in seen)
    assert noise_to_signal(optimizer) == pytest.approx(math.sqrt(noise / signal), rel=1e-5)


@pytest.mark.parametrize("kind", ["UPGD, adaptive noise", "AdaptiveUPGD"])
def test_the_ratio_does_not_depend_on_the_scale_of_the_gradients(kind: str) -> None:
    small, large = (noise_to_signal(stepped(*KINDS[kind], scale)[0]) for scale in (1.0, 1e3))
    assert small == pytest.approx(large, rel=1e-4)


def test_without_noise_the_ratio_is_zero() -> None:
    optimizer, _ = stepped(UPGD, {"sigma": 0.0, "adaptive_noise": True})
    assert noise_to_signal(optimizer) == 0.0


def test_the_ratio_may_be_large() -> None:
    parameter = torch.ones(2, requires_grad=True)
    optimizer = UPGD([parameter], sigma=0.5)
    parameter.grad = torch.tensor([3e-3, 4e-3])
    optimizer.step()
    assert noise_to_signal(optimizer) == pytest.approx(0.5 * math.sqrt(2) / 5e-3)


@pytest.mark.parametrize("absent", [0, 1])
@pytest.mark.parametrize("kind", ["UPGD", "AdaptiveUPGD"])
def test_a_parameter_without_gradient_counts_for_nothing(kind: str, absent: int) -> None:
    optimizer, seen = stepped(*KINDS[kind])
    direction, std = seen[1 - absent]
    optimizer.param_groups[0]["params"][absent].grad = None
    optimizer.add_param_group({"params": [torch.ones(1000, requires_grad=True)]})
    expected = std * math.sqrt(direction.numel()) / float(torch.linalg.vector_norm(direction))
    assert noise_to_signal(optimizer) == pytest.approx(expected, rel=1e-5)


def test_there_is_no_ratio_before_a_step_of_nothing_and_of_other_optimizers() -> None:
    parameter = torch.ones(3, requires_grad=True)
    optimizer = UPGD([parameter])
    parameter.grad = torch.zeros(3)
    assert noise_to_signal(optimizer) is None
    optimizer.step()
    assert noise_to_signal(optimizer) is None
    assert noise_to_signal(torch.optim.SGD([parameter], lr=0.1)) is None
