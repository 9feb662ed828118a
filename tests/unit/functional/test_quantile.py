"""Quantile Huber loss against its definition, written out element by element."""

from __future__ import annotations

import torch

from rlcore.functional.quantile import quantile_huber_loss, quantile_midpoints


def test_midpoints_are_the_centres_of_equal_slices() -> None:
    assert quantile_midpoints(4).tolist() == [0.125, 0.375, 0.625, 0.875]


def test_the_quadratic_part_ends_at_one_unless_told_otherwise() -> None:
    quantiles, targets = torch.tensor([[-4.0, 0.5]]), torch.tensor([0.0])
    assert torch.equal(quantile_huber_loss(quantiles, targets), quantile_huber_loss(quantiles, targets, kappa=1.0))
    assert not torch.equal(quantile_huber_loss(quantiles, targets), quantile_huber_loss(quantiles, targets, kappa=2.0))


def test_levels_and_loss_stay_on_the_device_that_is_given() -> None:
    """On the device ``meta``, which is there on every machine and mixes with no other."""
    assert quantile_midpoints(3, device="meta").device.type == "meta"
    loss = quantile_huber_loss(torch.zeros(2, 3, device="meta"), torch.zeros(2, device="meta"))
    assert (loss.device.type, loss.shape) == ("meta", (2,))
