"""The moments of one step's gradients: compiled or by torch they are the same numbers, and both are right."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rlcore.optim.gradient_variance import Moments, measure, scale

SHAPES = [(7, 5), (1,), (3, 4, 2), (1300,), (9, 9)]
WAYS = pytest.mark.parametrize("way", ["compiled", "by torch"])


def in_way(tensor: Tensor, way: str) -> Tensor:
    """The same numbers, next to others that keep the kernel away."""
    return tensor if way == "compiled" else torch.stack([tensor, torch.full_like(tensor, 77.0)], dim=-1)[..., 0]


def gradients(
    seed: int = 0, offset: float = 0.3, factor: float = 1.0, dtype: torch.dtype = torch.float32, way: str = "compiled"
) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    drawn = [factor * (offset + torch.randn(shape, generator=generator)) for shape in SHAPES]
    return [in_way(each.to(dtype), way) for each in drawn]


def assert_right(moments: Moments, tensors: list[Tensor], factor: float = 1.0) -> None:
    expected = [tensor.double().numpy() for tensor in tensors]
    assert {each.dtype for each in moments} == {np.dtype(np.float64)}
    assert moments.size.tolist() == [each.size for each in expected]
    assert moments.mean == pytest.approx([each.mean() for each in expected], rel=1e-6, abs=1e-7 * factor)
    assert moments.variance == pytest.approx([each.var() for each in expected], rel=1e-6, abs=0.0)
    assert moments.mean_square == pytest.approx([np.square(each).mean() for each in expected], rel=1e-6)


@WAYS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("factor", [1e-3, 1.0, 1e3])
def test_the_moments_are_those_of_float64(dtype: torch.dtype, factor: float, way: str) -> None:
    tensors = gradients(factor=factor, dtype=dtype, way=way)
    assert_right(measure(tensors), tensors, factor)


def test_gradients_of_several_kinds_are_measured_and_scaled_together() -> None:
    dtypes = [torch.float32, torch.bfloat16, torch.float64, torch.float32, torch.float32]
    tensors = [tensor.to(dtype) for tensor, dtype in zip(gradients(), dtypes, strict=True)]
    tensors[4] = tensors[4].T
    before = [each.clone() for each in tensors]
    assert_right(measure(tensors), tensors)
    scale(tensors, 2.0)
    assert all(torch.equal(scaled, 2.0 * old) for scaled, old in zip(tensors, before, strict=True))


@given(
    st.integers(1, 3000),
    st.integers(0, 2**16),
    st.sampled_from([0.0, 1.0, -300.0, 1e5]),
    st.sampled_from([1e-42, 1e-25, 1.0, 1e15, 1e30]),
    st.sampled_from([None, 0.0, 1e3, 1e8]),
)
def test_both_ways_have_the_moments_of_float64_next_to_any_mean(
    size: int, seed: int, offset: float, factor: float, outlier: float | None
) -> None:
    """At the ends of float32 too, and with one element far from the others, or an element 0 among large ones."""
    tensor = factor * (offset + torch.randn(size, generator=torch.Generator().manual_seed(seed)))
    if outlier is not None:
        tensor[seed % size] = factor * outlier
    numbers = tensor.double().numpy()
    for way in ("compiled", "by torch"):
        found = measure([in_way(tensor, way)])
        assert found.mean == pytest.approx([numbers.mean()], rel=1e-7, abs=1e-6 * numbers.std())
        assert found.variance == pytest.approx([numbers.var()], rel=1e-5, abs=0.0)
        assert found.mean_square == pytest.approx([np.square(numbers).mean()], rel=1e-6, abs=0.0)


@pytest.mark.parametrize("draw", [
    lambda generator: torch.rand(10_000_000, generator=generator) * 0.9 + 1.0,
    lambda generator: 10.0 + 1e-3 * torch.randn(1_000_000, generator=generator),
])  # fmt: skip
def test_the_variance_of_a_large_tensor_next_to_a_large_mean(draw: Any) -> None:
    tensor = draw(torch.Generator().manual_seed(0))
    expected = tensor.numpy().var(dtype=np.float64)
    assert measure([tensor]).variance == pytest.approx([expected], rel=1e-6)


@pytest.mark.parametrize(("negative", "positive", "mean"), [(1, 1, 0.0), (1, 2, 1e150), (100, 50, -1e150)])
def test_the_moments_of_the_largest_numbers_are_limited_and_finite(negative: int, positive: int, mean: float) -> None:
    gradient = torch.tensor([-1.7e308] * negative + [1.7e308] * positive, dtype=torch.float64)
    moments = measure([gradient])
    assert (moments.mean.tolist(), moments.variance.tolist()) == ([mean], [1e150])
    assert moments.mean_square.tolist() == [1e150]


@WAYS
@pytest.mark.parametrize("bad", [[math.nan], [math.inf], [-math.inf], [math.inf, -math.inf], [math.inf] * 24])
def test_a_gradient_that_is_no_number_has_no_moments_and_the_others_keep_theirs(bad: list[float], way: str) -> None:
    clean, tensors = measure(gradients(way=way)), gradients(way=way)
    spoilt = tensors[2].reshape(-1).clone()
    spoilt[-len(bad) :] = torch.tensor(bad)
    tensors[2].copy_(spoilt.view(3, 4, 2))
    moments = measure(tensors)
    kept = [0, 1, 3, 4]
    for found, expected in ((moments.mean, clean.mean), (moments.mean_square, clean.mean_square)):
        assert np.isnan(found).tolist() == [False, False, True, False, False]
        assert found[kept].tolist() == expected[kept].tolist()


@WAYS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scaling_multiplies_every_element_in_place_and_autograd_hears_of_it(dtype: torch.dtype, way: str) -> None:
    tensors = gradients(dtype=dtype, way=way)
    expected = [each * 0.37 for each in tensors]
    scale(tensors, 0.37)
    assert all(torch.equal(scaled, wanted) for scaled, wanted in zip(tensors, expected, strict=True))
    weight = torch.tensor([1.0, 2.0], dtype=dtype, requires_grad=True)
    (gradient,) = torch.autograd.grad((weight**3).sum(), weight, create_graph=True)
    penalty = (gradient**2).sum()
    scale([gradient.detach()], 0.5)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(penalty, weight)


def test_no_gradients_have_no_moments() -> None:
    moments = measure([])
    assert (moments.size.tolist(), moments.mean.tolist()) == ([], [])
    scale([], 0.5)
