"""The moments of one step's gradients: compiled or by torch they are the same numbers, and both are right."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rlcore.optim import memory
from rlcore.optim.gradient_moments import Gradients, Moments, on_host

SHAPES = [(7, 5), (1,), (3, 4, 2), (1300,), (9, 9)]


def gradients(
    seed: int = 0, offset: float = 0.3, scale: float = 1.0, dtype: torch.dtype = torch.float32
) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    drawn = [scale * (offset + torch.randn(shape, generator=generator)) for shape in SHAPES]
    return [each.to(dtype) for each in drawn]


def measure(tensors: list[Tensor], *, maximum: bool = True) -> Moments:
    return Gradients(tensors).measure(maximum=maximum)[0]


@pytest.fixture(params=["compiled", "by torch"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "by torch":
        monkeypatch.setattr(memory, "address", lambda _: 0)
    return str(request.param)


def test_contiguous_float32_is_compiled_and_the_rest_is_left_to_torch() -> None:
    tensors = gradients()
    tensors[0] = tensors[0].T
    tensors[2] = tensors[2].double()
    mixed = Gradients(tensors)
    assert (mixed.compiled.tolist(), mixed.plain) == ([1, 3, 4], [0, 2])
    expected = [each.double().numpy().copy() for each in tensors]
    moments, announced = mixed.measure(maximum=True)
    assert moments.mean == pytest.approx([each.mean() for each in expected], rel=1e-6)
    assert moments.variance == pytest.approx([each.var() for each in expected], rel=1e-6)
    assert announced.tolist() == [0.0] * 3
    mixed.scale(2.0)
    assert all(
        np.array_equal(scaled.double().numpy(), 2.0 * before) for scaled, before in zip(tensors, expected, strict=True)
    )


def test_the_kernel_takes_only_what_it_may_take() -> None:
    chosen = Gradients(gradients(), [True, False, True, False, True])
    assert (chosen.compiled.tolist(), chosen.plain) == ([0, 2, 4], [1, 3])


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_the_moments_are_those_of_float64(dtype: torch.dtype, scale: float) -> None:
    tensors = gradients(scale=scale, dtype=dtype)
    expected = [tensor.double().numpy() for tensor in tensors]
    moments = measure(tensors)
    numbers = (moments.size, moments.mean, moments.variance, moments.mean_square)
    assert moments.size.tolist() == [each.size for each in expected]
    assert {each.dtype for each in numbers} == {np.dtype(np.float64)}
    assert moments.mean == pytest.approx([each.mean() for each in expected], rel=1e-6, abs=1e-7 * scale)
    assert moments.variance == pytest.approx([each.var() for each in expected], rel=1e-6, abs=0.0)
    assert moments.mean_square == pytest.approx([np.square(each).mean() for each in expected], rel=1e-6)
    assert moments.maximum == max(float(np.abs(each).max()) for each in expected)


def test_gradients_of_several_precisions_are_measured_together() -> None:
    dtypes = [torch.float32, torch.bfloat16, torch.float64, torch.float16, torch.float64]
    tensors = [tensor.to(dtype) for tensor, dtype in zip(gradients(), dtypes, strict=True)]
    moments, expected = measure(tensors), [tensor.double().numpy() for tensor in tensors]
    assert moments.mean == pytest.approx([each.mean() for each in expected], rel=1e-6, abs=1e-7)
    assert moments.mean_square == pytest.approx([np.square(each).mean() for each in expected], rel=1e-6)
    assert moments.maximum == max(float(np.abs(each).max()) for each in expected)


@pytest.mark.usefixtures("way")
@given(st.integers(0, 2**16), st.sampled_from([0.0, 1.0, -1e3, 1e5]))
def test_the_variances_are_those_of_float64_beside_any_mean(seed: int, offset: float) -> None:
    tensors = gradients(seed, offset)
    expected = [tensor.double().numpy().var() for tensor in tensors]
    assert measure(tensors).variance == pytest.approx(expected, rel=1e-5, abs=0.0)


@given(
    st.integers(1, 3000),
    st.integers(0, 2**16),
    st.sampled_from([0.0, 1.0, -300.0]),
    st.sampled_from([1e-42, 1e-25, 1.0, 1e15, 1e30]),
    st.sampled_from([None, 0.0, 1e3, 1e8]),
)
def test_the_compiled_moments_are_those_of_torch(
    size: int, seed: int, offset: float, scale: float, outlier: float | None
) -> None:
    """At the ends of float32 too, and with one element far from the others, or an element 0 among large ones."""
    tensor = scale * (offset + torch.randn(size, generator=torch.Generator().manual_seed(seed)))
    if outlier is not None:
        tensor[seed % size] = scale * outlier
    compiled, plain = Gradients([tensor]), Gradients([tensor], [False])
    assert (compiled.plain, plain.plain) == ([], [0])
    found, reference = compiled.measure(maximum=True)[0], plain.measure(maximum=True)[0]
    spread = math.sqrt(reference.variance[0])
    assert found.mean == pytest.approx(reference.mean, rel=1e-7, abs=1e-6 * spread)
    assert found.variance == pytest.approx(reference.variance, rel=1e-5, abs=0.0)
    assert found.mean_square == pytest.approx(reference.mean_square, rel=1e-6, abs=0.0)
    assert found.maximum == reference.maximum


@pytest.mark.usefixtures("way")
def test_the_largest_magnitude_is_found_on_either_side_and_only_where_it_is_asked_for() -> None:
    for extreme in (-50.0, 40.0):
        tensors = gradients()
        tensors[3][17] = extreme
        assert measure(tensors).maximum == abs(extreme)
        assert measure(tensors, maximum=False).maximum is None


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("bad", [[math.nan], [math.inf], [-math.inf], [math.inf, -math.inf], [math.inf] * 24])
def test_a_gradient_that_is_no_number_has_no_moments_and_the_others_keep_theirs(bad: list[float]) -> None:
    clean, tensors = measure(gradients()), gradients()
    tensors[2].view(-1)[-len(bad) :] = torch.tensor(bad)
    moments = measure(tensors, maximum=False)
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
    Gradients(tensors).scale(0.37)
    assert all(torch.equal(scaled, wanted) for scaled, wanted in zip(tensors, expected, strict=True))


def test_the_variance_of_a_large_tensor_beside_a_mean_as_large() -> None:
    tensor = torch.rand(10_000_000, generator=torch.Generator().manual_seed(0)) * 0.9 + 1.0
    assert measure([tensor]).variance == pytest.approx([tensor.numpy().var(dtype=np.float64)], rel=1e-6)


@pytest.mark.usefixtures("way")
def test_autograd_hears_of_the_scaling() -> None:
    """As of any change in place: it must not compute with values that it has not saved."""
    weight = torch.tensor([1.0, 2.0], requires_grad=True)
    (gradient,) = torch.autograd.grad((weight**3).sum(), weight, create_graph=True)
    penalty = (gradient**2).sum()
    Gradients([gradient.detach()]).scale(0.5)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(penalty, weight)


def test_no_gradients_have_no_moments() -> None:
    nothing = Gradients([])
    moments = nothing.measure(maximum=True)[0]
    assert (moments.maximum, moments.size.tolist(), moments.mean.tolist()) == (0.0, [], [])
    nothing.scale(0.5)


def test_scalars_come_to_the_host_as_float64_whatever_their_dtype() -> None:
    values = on_host([torch.tensor(0.1, dtype=torch.float16), torch.tensor(-2.5)])
    assert (values.dtype, values.tolist()) == (np.float64, [0.0999755859375, -2.5])
    assert on_host([]).tolist() == []


def test_scalars_of_several_devices_are_joined_on_the_first_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only they can be copied to the host at once. The meta device has no numbers, so the test makes them up."""
    joined: list[str] = []

    def stack(tensors: list[Tensor]) -> Tensor:
        joined.extend(str(tensor.device) for tensor in tensors)
        return torch.zeros(len(tensors))

    monkeypatch.setattr(torch, "stack", stack)
    assert on_host([torch.zeros((), device="meta"), torch.zeros(())]).tolist() == [0.0, 0.0]
    assert joined == ["meta"] * 2


def test_the_kernel_uses_the_limits_and_the_columns_of_the_callers() -> None:
    """Of its own file alone, as Numba's cache follows no other."""
    from rlcore.optim import variance_kernel as kernel
    from rlcore.optim.gradient_variance import LARGEST_ELEMENT

    assert np.float32(LARGEST_ELEMENT[torch.float32]) == kernel.LARGEST_ELEMENT
    columns = (kernel.GRADIENT, kernel.MEANS, kernel.VARIANCES, kernel.DEVIATIONS, kernel.SIZE)
    assert columns == (0, 1, 2, 3, 4)
