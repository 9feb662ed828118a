"""Clipping of the ratio and of a value distribution's mean."""

from __future__ import annotations

import torch

from rlcore.functional.clipping import clip_distribution_mean


def test_a_mean_within_the_range_is_left_alone_and_keeps_its_gradient() -> None:
    quantiles = torch.tensor([[0.1, 0.3]], requires_grad=True)
    clipped = clip_distribution_mean(quantiles, torch.tensor([0.0]), 0.5)
    assert torch.equal(clipped, quantiles)
    clipped.sum().backward()
    assert torch.allclose(quantiles.grad, torch.ones(1, 2))  # type: ignore[arg-type]


def test_a_mean_beyond_the_range_has_no_gradient_but_the_shape_still_has() -> None:
    quantiles = torch.tensor([[2.0, 4.0]], requires_grad=True)
    clip_distribution_mean(quantiles, torch.tensor([0.0]), 0.5)[0, 1].backward()
    # the last quantile is 0.5 + (q1 - q0) / 2: only the spread moves it
    assert torch.allclose(quantiles.grad, torch.tensor([[-0.5, 0.5]]))  # type: ignore[arg-type]
