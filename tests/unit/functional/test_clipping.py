"""Clipping of the ratio and of a value distribution's mean."""

from __future__ import annotations

import torch

from rlcore.functional.clipping import clip_distribution_mean, clipped_surrogate


def test_mean_is_clipped_and_the_shape_of_the_distribution_stays() -> None:
    quantiles = torch.tensor([[0.0, 1.0, 5.0], [-9.0, -8.0, -7.0], [1.0, 1.0, 1.3]])
    old_means = torch.tensor([0.0, 0.0, 1.0])
    clipped = clip_distribution_mean(quantiles, old_means, 0.5)
    assert torch.allclose(clipped.mean(dim=-1), torch.tensor([0.5, -0.5, 1.1]))
    assert torch.allclose(clipped.diff(dim=-1), quantiles.diff(dim=-1))


def test_a_mean_within_the_range_is_left_alone_and_keeps_its_gradient() -> None:
    quantiles = torch.tensor([[0.1, 0.3]], requires_grad=True)
    clipped = clip_distribution_mean(quantiles, torch.tensor([0.0]), 0.5)
    assert torch.equal(clipped, quantiles)
    clipped.sum().backward()
    assert torch.allclose(quantiles.grad, torch.ones(1, 2))  # type: ignore[arg-type]


def test_surrogate_is_the_smaller_of_the_two_objectives() -> None:
    advantages = torch.tensor([1.0, 1.0, -1.0, -1.0])
    log_ratio = torch.log(torch.tensor([1.5, 0.5, 1.5, 0.5]))
    assert torch.allclose(clipped_surrogate(advantages, log_ratio, 0.2), torch.tensor([1.2, 0.5, -1.5, -0.8]))


def test_a_mean_beyond_the_range_has_no_gradient_but_the_shape_still_has() -> None:
    quantiles = torch.tensor([[2.0, 4.0]], requires_grad=True)
    clip_distribution_mean(quantiles, torch.tensor([0.0]), 0.5)[0, 1].backward()
    # the last quantile is 0.5 + (q1 - q0) / 2: only the spread moves it
    assert torch.allclose(quantiles.grad, torch.tensor([[-0.5, 0.5]]))  # type: ignore[arg-type]
