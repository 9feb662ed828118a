"""Quantile Huber loss against its definition, written out element by element."""

from __future__ import annotations

import pytest
import torch

from rlcore.functional.quantile import quantile_huber_loss, quantile_midpoints


def defined_loss(quantiles: list[float], target: float, kappa: float) -> float:
    total = 0.0
    for i, quantile in enumerate(quantiles):
        error = target - quantile
        if kappa == 0.0:
            size = abs(error)
        elif abs(error) <= kappa:
            size = 0.5 * error * error / kappa
        else:
            size = abs(error) - 0.5 * kappa
        level = (2 * i + 1) / (2 * len(quantiles))
        total += abs(level - (1.0 if error < 0 else 0.0)) * size
    return total / len(quantiles)


@pytest.mark.parametrize("kappa", [0.0, 0.3, 1.0, 5.0])
def test_loss_is_its_definition(kappa: float) -> None:
    generator = torch.Generator().manual_seed(0)
    quantiles = torch.randn(7, 2, 5, generator=generator, dtype=torch.float64) * 3
    targets = torch.randn(7, 2, generator=generator, dtype=torch.float64) * 3
    losses = quantile_huber_loss(quantiles, targets, kappa)
    for sample in range(7):
        for critic in range(2):
            expected = defined_loss(quantiles[sample, critic].tolist(), targets[sample, critic].item(), kappa)
            assert losses[sample, critic].item() == pytest.approx(expected, rel=1e-12)


def test_midpoints_are_the_centres_of_equal_slices() -> None:
    assert quantile_midpoints(4).tolist() == [0.125, 0.375, 0.625, 0.875]


def test_quantiles_that_minimise_the_loss_are_those_of_the_sample() -> None:
    returns = torch.linspace(-1.0, 3.0, 401, dtype=torch.float64)
    quantiles = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([quantiles], lr=0.05)
    for step in range(600):
        for group in optimizer.param_groups:
            group["lr"] = 0.05 * (1 - step / 600)
        optimizer.zero_grad()
        quantile_huber_loss(quantiles.expand(401, 4), returns, 0.0).mean().backward()
        optimizer.step()
    expected = torch.quantile(returns, quantile_midpoints(4).double())
    assert torch.allclose(quantiles.detach(), expected, atol=0.03)


def test_gradient_flows_to_the_quantiles_and_stays_bounded_by_the_level() -> None:
    quantiles = torch.zeros(1, 2, requires_grad=True)
    quantile_huber_loss(quantiles, torch.tensor([1e6]), 1.0).sum().backward()
    assert quantiles.grad is not None
    assert torch.allclose(quantiles.grad, -quantile_midpoints(2).unsqueeze(0) / 2)


def test_the_quadratic_part_ends_at_one_unless_told_otherwise() -> None:
    quantiles, targets = torch.tensor([[-4.0, 0.5]]), torch.tensor([0.0])
    assert torch.equal(quantile_huber_loss(quantiles, targets), quantile_huber_loss(quantiles, targets, kappa=1.0))
    assert not torch.equal(quantile_huber_loss(quantiles, targets), quantile_huber_loss(quantiles, targets, kappa=2.0))


def test_levels_and_loss_stay_on_the_device_that_is_given() -> None:
    """On the device ``meta``, which is there on every machine and mixes with no other."""
    assert quantile_midpoints(3, device="meta").device.type == "meta"
    loss = quantile_huber_loss(torch.zeros(2, 3, device="meta"), torch.zeros(2, device="meta"))
    assert (loss.device.type, loss.shape) == ("meta", (2,))
