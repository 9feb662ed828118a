"""Distributions on fixed atoms: hand-worked numbers, gradients, and shapes that do not fit."""

from __future__ import annotations

import math

import pytest
import torch

from rlcore.functional import categorical
from tests.reference import categorical_reference as reference

SUPPORT = torch.tensor([-1.0, 0.0, 1.0, 2.0])


def test_atoms_are_evenly_spaced_and_end_at_the_range() -> None:
    assert categorical.categorical_support(-1.0, 2.0, 4).tolist() == SUPPORT.tolist()
    assert categorical.categorical_support(0.0, 1.0, 2, dtype=torch.float64).dtype == torch.float64


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, [0, 1, 0, 0]),
        (0.25, [0, 0.75, 0.25, 0]),
        (2.0, [0, 0, 0, 1]),
        (-1.0, [1, 0, 0, 0]),
        (7.0, [0, 0, 0, 1]),
        (-7.0, [1, 0, 0, 0]),
        (math.inf, [0, 0, 0, 1]),
    ],
)
def test_a_return_is_shared_by_its_neighbours(value: float, expected: list[float]) -> None:
    assert categorical.project_returns(torch.tensor(value), SUPPORT).tolist() == pytest.approx(expected, abs=1e-6)


def test_cross_entropy_is_that_of_the_projected_return() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 2, 4, generator=generator, dtype=torch.float64)
    returns = torch.tensor([-3.0, -1.0, 0.3, 1.9, 5.0], dtype=torch.float64).unsqueeze(-1).expand(5, 2)
    old = torch.randn(5, 2, generator=generator, dtype=torch.float64)
    plain = categorical.categorical_cross_entropy(logits, returns, SUPPORT.double())
    clipped = categorical.clipped_cross_entropy(logits, returns, old, 0.1, SUPPORT.double())
    for sample in range(5):
        for critic in range(2):
            row, value = reference.softmax(logits[sample, critic].tolist()), float(returns[sample, critic])
            assert plain[sample, critic].item() == pytest.approx(reference.cross_entropy(row, value, SUPPORT.tolist()))
            shifted = reference.clip_mean(row, float(old[sample, critic]), 0.1, SUPPORT.tolist())
            floored = [max(p, math.sqrt(torch.finfo(torch.float64).tiny)) for p in shifted]
            expected = reference.cross_entropy(floored, value, SUPPORT.tolist())
            assert clipped[sample, critic].item() == pytest.approx(expected)


@pytest.mark.parametrize("spread", [1.0, 90.0, 1e4])
def test_gradients_stay_finite_however_sure_the_critic_is(spread: float) -> None:
    logits = torch.tensor([[0.0, spread, 0.0, -spread]], requires_grad=True)
    returns, old = torch.tensor([2.0]), torch.tensor([0.0])
    plain = categorical.categorical_cross_entropy(logits, returns, SUPPORT)
    clipped = categorical.clipped_cross_entropy(logits, returns, old, 0.2, SUPPORT)
    torch.max(plain, clipped).sum().backward()
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())
    assert bool(clipped.isfinite().all())


def test_beyond_the_range_the_mean_has_no_gradient() -> None:
    logits = torch.tensor([[0.1, 0.4, -0.3, 0.2]], dtype=torch.float64, requires_grad=True)
    probabilities = torch.softmax(logits, -1)
    probabilities = torch.nn.functional.pad(probabilities, (8, 8))
    wide = torch.arange(-9.0, 11.0, dtype=torch.float64)
    clipped = categorical.clip_categorical_mean(probabilities, torch.tensor([5.03], dtype=torch.float64), 0.5, wide)
    mean = categorical.categorical_mean(clipped, wide).sum()
    assert mean.item() == pytest.approx(4.53)
    (gradient,) = torch.autograd.grad(mean, logits)
    assert gradient.abs().max().item() < 1e-12


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (categorical.project, (torch.ones(2, 3), torch.ones(2, 4), SUPPORT)),
        (categorical.project, (torch.ones(1), torch.ones(1), torch.ones(1))),
        (categorical.project_returns, (torch.ones(2), torch.ones(2, 4))),
        (categorical.clip_categorical_mean, (torch.ones(2, 4), torch.ones(3), 0.1, SUPPORT)),
        (categorical.categorical_cross_entropy, (torch.ones(2, 3), torch.ones(2), SUPPORT)),
        (categorical.categorical_cross_entropy, (torch.ones(2, 2, 4), torch.ones(2), SUPPORT)),
    ],
)
def test_shapes_that_do_not_fit_are_refused(function: object, arguments: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match="shape"):
        function(*arguments)  # type: ignore[operator]


def test_distributions_stay_on_the_device_that_is_given() -> None:
    """On the device ``meta``, which is there on every machine and mixes with no other."""
    support = categorical.categorical_support(-1.0, 2.0, 4, device="meta")
    logits, returns = torch.zeros(2, 4, device="meta"), torch.zeros(2, device="meta")
    results = [
        support,
        categorical.project_returns(returns, support),
        categorical.clip_categorical_mean(logits, returns, 0.1, support),
        categorical.clipped_cross_entropy(logits, returns, returns, 0.1, support),
    ]
    assert [result.device.type for result in results] == ["meta"] * 4
