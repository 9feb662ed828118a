"""Distributions on fixed atoms: hand-worked numbers, gradients, and shapes that do not fit."""

from __future__ import annotations

import math

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from rlcore.functional import categorical
from rlcore.functional.quantile import clip_distribution_mean, quantile_huber_loss, quantile_midpoints
from rlcore.optim.upgd_step import UtilityExtremes, bounded, gate, gather, utility_scale
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


@pytest.mark.parametrize("scale_dtype", [torch.float32, torch.float64])
def test_a_gate_has_the_dtype_of_its_utility_whatever_that_of_the_scale(scale_dtype: torch.dtype) -> None:
    utility = torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float16)
    protection = gate(utility, torch.tensor(2.0, dtype=scale_dtype))
    assert protection.dtype == torch.float16
    assert torch.equal(protection, torch.sigmoid(torch.tensor([-0.5, 0.0, 1.0])).half())


def test_a_scale_follows_the_utility_to_its_device_and_scalars_follow_the_first() -> None:
    """On devices that are made up, which refuse to be mixed as real ones do."""
    with FakeTensorMode():
        here, there = (torch.empty((), device=device) for device in ("cuda:0", "cuda:1"))
        assert gate(torch.empty(3, device="cuda:1"), here).device == there.device
        gathered = gather([here, there, torch.empty(())])
    assert gathered.device == here.device
    assert gathered.shape == (3,)


@pytest.mark.parametrize(
    ("maximum", "magnitude", "expected"),
    [(2.0, 5.0, 2.0), (0.0, 5.0, 5.0), (-3.0, 5.0, 5.0), (-0.1, 0.25, 0.25), (0.0, 0.0, 1.0)],
)
def test_the_scale_is_the_largest_utility_or_the_largest_magnitude_or_one(
    maximum: float, magnitude: float, expected: float
) -> None:
    assert utility_scale(UtilityExtremes(torch.tensor(maximum), torch.tensor(magnitude))) == torch.tensor(expected)
    assert utility_scale(UtilityExtremes(maximum, magnitude)) == expected
    assert utility_scale(UtilityExtremes(torch.tensor(maximum), magnitude)) == torch.tensor(expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_values_are_limited_to_a_quarter_of_the_range_of_their_dtype(dtype: torch.dtype) -> None:
    quarter = torch.finfo(dtype).max / 4
    values = torch.tensor([-torch.inf, -quarter, -1.0, 0.99 * quarter, torch.inf], dtype=dtype)
    assert torch.equal(bounded(values), torch.tensor([-quarter, -quarter, -1.0, 0.99 * quarter, quarter], dtype=dtype))
