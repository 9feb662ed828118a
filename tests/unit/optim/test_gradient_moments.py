"""The moments of one step's gradients: gathered or one by one they are the same numbers, and both are right."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rlcore.optim import gradient_moments
from rlcore.optim.gradient_moments import Gradients

SHAPES = [(7, 5), (1,), (3, 4, 2), (130,), (9, 9)]


def gradients(
    seed: int = 0, offset: float = 0.3, scale: float = 1.0, dtype: torch.dtype = torch.float32
) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    drawn = [scale * (offset + torch.randn(shape, generator=generator)) for shape in SHAPES]
    drawn[0] = drawn[0].T.contiguous().T
    return [each.to(dtype) for each in drawn]


@pytest.fixture(params=["gathered", "one by one"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "one by one":
        monkeypatch.setattr(gradient_moments, "GATHERED", 0)
    return str(request.param)


def test_few_elements_are_gathered_and_many_are_not(way: str) -> None:
    assert (Gradients.measure(gradients()).gathered is not None) == (way == "gathered")
    assert Gradients.measure(gradients(dtype=torch.float64)).gathered is None


def test_a_single_gradient_is_gathered_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient_moments, "GATHERED", 35)
    assert [Gradients.measure([torch.ones(size)]).gathered is not None for size in (34, 35, 36)] == [True, True, False]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_the_moments_are_those_of_float64(dtype: torch.dtype, scale: float) -> None:
    tensors = gradients(scale=scale, dtype=dtype)
    expected = [tensor.double().numpy() for tensor in tensors]
    moments = Gradients.measure(tensors).moments
    assert moments.size.tolist() == [each.size for each in expected]
    assert {each.dtype for each in (moments.size, moments.mean, moments.mean_square)} == {np.dtype(np.float64)}
    tolerance = 1e-6 * scale
    assert moments.mean == pytest.approx([each.mean() for each in expected], rel=1e-5, abs=tolerance)
    assert moments.mean_square == pytest.approx([np.square(each).mean() for each in expected], rel=1e-5)
    assert moments.maximum == max(float(np.abs(each).max()) for each in expected)
    assert moments.largest_norm == pytest.approx(max(float(np.linalg.norm(each)) for each in expected), rel=1e-5)


def test_gradients_of_several_precisions_are_measured_together() -> None:
    dtypes = [torch.float32, torch.bfloat16, torch.float64, torch.float16, torch.float64]
    tensors = [tensor.to(dtype) for tensor, dtype in zip(gradients(), dtypes, strict=True)]
    measured, expected = Gradients.measure(tensors), [tensor.double().numpy() for tensor in tensors]
    assert measured.moments.mean == pytest.approx([each.mean() for each in expected], rel=1e-5, abs=1e-6)
    assert measured.moments.mean_square == pytest.approx([np.square(each).mean() for each in expected], rel=1e-5)
    assert measured.moments.maximum == max(float(np.abs(each).max()) for each in expected)


@pytest.mark.usefixtures("way")
@given(st.integers(0, 2**16), st.sampled_from([0.0, 1.0, 1e3]))
def test_the_spatial_variances_are_those_of_float64_beside_any_mean(seed: int, offset: float) -> None:
    tensors = gradients(seed, offset)
    expected = [tensor.double().numpy().var() for tensor in tensors]
    assert Gradients.measure(tensors).spatial_variances() == pytest.approx(expected, rel=1e-3, abs=0.0)


@pytest.mark.usefixtures("way")
def test_the_largest_magnitude_is_found_on_either_side_and_only_where_it_is_asked_for() -> None:
    for extreme in (-50.0, 40.0):
        tensors = gradients()
        tensors[3][17] = extreme
        assert Gradients.measure(tensors).moments.maximum == abs(extreme)
        assert Gradients.measure(tensors, maximum=False).moments.maximum is None


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("bad", [[math.nan], [math.inf], [-math.inf], [math.inf, -math.inf]])
def test_a_gradient_that_is_no_number_has_no_moments_and_the_others_keep_theirs(bad: list[float]) -> None:
    clean, tensors = Gradients.measure(gradients()).moments, gradients()
    tensors[2][1, 2, : len(bad)] = torch.tensor(bad)
    moments = Gradients.measure(tensors, maximum=False).moments
    assert np.isnan(moments.mean).tolist() == [False, False, True, False, False]
    assert np.isnan(moments.mean_square).tolist() == [False, False, True, False, False]
    kept = [0, 1, 3, 4]
    assert moments.mean[kept].tolist() == clean.mean[kept].tolist()
    assert moments.mean_square[kept].tolist() == clean.mean_square[kept].tolist()


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scaling_multiplies_every_element_in_place(dtype: torch.dtype) -> None:
    tensors = gradients(dtype=dtype)
    expected = [each * 0.37 for each in tensors]
    Gradients.measure(tensors).scale(0.37)
    assert all(torch.equal(scaled, wanted) for scaled, wanted in zip(tensors, expected, strict=True))


def test_the_spatial_variance_of_a_large_tensor_beside_a_mean_as_large() -> None:
    """The float32 norm of ten million elements is wrong by 3e-4, which is a hundredth of this variance."""
    tensor = torch.rand(10_000_000, generator=torch.Generator().manual_seed(0)) * 0.9 + 1.0
    assert Gradients.measure([tensor]).spatial_variances() == pytest.approx(
        [tensor.numpy().var(dtype=np.float64)], rel=1e-3
    )


@pytest.mark.usefixtures("way")
def test_autograd_hears_of_the_scaling() -> None:
    """As of any change in place: it must not compute with values that it has not saved."""
    weight = torch.tensor([1.0, 2.0], requires_grad=True)
    (gradient,) = torch.autograd.grad((weight**3).sum(), weight, create_graph=True)
    penalty = (gradient**2).sum()
    Gradients.measure([gradient.detach()]).scale(0.5)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(penalty, weight)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_elements_are_read_by_their_place_in_row_major_order(dtype: torch.dtype) -> None:
    tensors = gradients(dtype=dtype)
    coordinates = [np.array(drawn) for drawn in ([0, 34], [0], [5], [1, 2, 129], [80])]
    offsets = np.cumsum([0, *(tensor.numel() for tensor in tensors)])
    places = np.concatenate([offset + drawn for offset, drawn in zip(offsets, coordinates, strict=False)])
    expected = [float(t.flatten()[i]) for t, drawn in zip(tensors, coordinates, strict=True) for i in drawn]
    assert Gradients.measure(tensors).elements(coordinates, places).tolist() == expected


def test_no_gradients_have_no_moments() -> None:
    nothing = Gradients.measure([])
    assert (nothing.moments.maximum, nothing.moments.largest_norm, nothing.moments.size.tolist()) == (0.0, 0.0, [])
    nothing.scale(0.5)
