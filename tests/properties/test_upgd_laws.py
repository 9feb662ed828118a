"""Laws of the utility gate and of the optimizers built on it, for any input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor, nn

from rlcore.functional.utility import bounded, gate, root_mean_square, utility_extremes, utility_scale, weight_utility
from rlcore.optim.upgd import UPGD, AdaptiveUPGD
from tests.reference.upgd_reference import protection

BOTH = pytest.mark.parametrize("optimizer_class", [UPGD, AdaptiveUPGD])
LARGEST = float(np.finfo(np.float32).max)
SIZES = st.integers(1, 6)
FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)


def tensors(low: float, high: float, dtype: type[np.floating[Any]] = np.float32) -> st.SearchStrategy[Tensor]:
    elements = st.floats(low, high, width=32 if dtype is np.float32 else 64)
    return SIZES.flatmap(lambda size: arrays(dtype, size, elements=elements)).map(torch.from_numpy)


ANY = tensors(-LARGEST, LARGEST)
ORDINARY = tensors(-100, 100, np.float64)


def protect(*utilities: Tensor) -> list[Tensor]:
    scale = utility_scale(utility_extremes(utilities))
    return [gate(utility, scale) for utility in utilities]


@given(ANY, ANY)
def test_gate_lies_between_0_and_1_for_every_finite_input(first: Tensor, second: Tensor) -> None:
    for share in protect(bounded(first), bounded(second)):
        assert bool(((share >= 0) & (share <= 1)).all())


@given(ANY, ANY)
@example(torch.tensor([-0.5, -0.1]), torch.tensor([-0.3]))
def test_larger_utility_is_never_protected_less(first: Tensor, second: Tensor) -> None:
    utilities = torch.cat([bounded(first), bounded(second)])
    shares = torch.cat(protect(bounded(first), bounded(second)))
    in_order = shares[utilities.argsort(stable=True)]
    # The vectorised sigmoid may be off by a unit in the last place, in either direction.
    assert bool((in_order.diff() >= -2e-7).all())


@given(ORDINARY, ORDINARY)
def test_protection_equals_the_reference(first: Tensor, second: Tensor) -> None:
    expected = [torch.from_numpy(share) for share in protection([first.numpy(), second.numpy()])]
    torch.testing.assert_close(protect(first, second), expected, rtol=0, atol=1e-12)


@given(
    SIZES.flatmap(
        lambda size: st.tuples(arrays(np.float32, size, elements=FINITE), arrays(np.float32, size, elements=FINITE))
    )
)
@example((np.array([3e38, -3e38], np.float32), np.array([3e38, 3e38], np.float32)))
def test_utility_of_finite_weights_is_finite_and_has_the_right_sign(pair: tuple[Any, Any]) -> None:
    gradient, parameter = map(torch.from_numpy, pair)
    utility = weight_utility(gradient, parameter)
    assert bool(torch.isfinite(utility).all())
    exact = -gradient.double() * parameter.double()
    assert bool((utility * exact.sign() >= 0).all())
    small = exact.abs() < 1e37
    torch.testing.assert_close(utility[small].double(), exact[small], rtol=1e-6, atol=1e-37)


@given(ANY)
def test_root_mean_square_neither_overflows_nor_vanishes(values: Tensor) -> None:
    exact = values.double().square().mean().sqrt()
    torch.testing.assert_close(root_mean_square(values).double(), exact, rtol=1e-5, atol=1e-37)


@BOTH
@given(data=st.data())
def test_finite_inputs_give_finite_state_and_never_nan(optimizer_class: Any, data: st.DataObject) -> None:
    parameter = nn.Parameter(torch.from_numpy(data.draw(arrays(np.float32, 4, elements=FINITE))))
    optimizer = optimizer_class(
        [parameter],
        lr=data.draw(st.sampled_from([0.0, 1e-5, 1.0])),
        sigma=data.draw(st.sampled_from([0.0, 1e-3, 10.0])),
        adaptive_noise=data.draw(st.booleans()),
        beta_utility=data.draw(st.sampled_from([0.0, 0.5, 0.999])),
    )
    for _ in range(3):
        parameter.grad = torch.from_numpy(data.draw(arrays(np.float32, 4, elements=FINITE)))
        optimizer.step()
        state = [entry for entry in optimizer.state[parameter].values() if isinstance(entry, Tensor)]
        assert all(bool(torch.isfinite(entry).all()) for entry in state)
        assert not bool(torch.isnan(parameter).any())
        parameter.data.clamp_(-LARGEST, LARGEST)


def test_gate_takes_a_scale_that_the_dtype_of_the_utility_cannot_hold() -> None:
    """A float64 parameter may set a maximum that is 0 or infinite in float32."""
    utility = torch.tensor([0.0, -1.0])
    assert gate(utility, torch.tensor(1e-300, dtype=torch.float64)).tolist() == [0.5, 0.0]
    assert gate(utility, torch.tensor(1e300, dtype=torch.float64)).tolist() == [0.5, 0.5]


@BOTH
def test_largest_gradient_for_many_steps_does_not_overflow_the_corrected_averages(optimizer_class: Any) -> None:
    """Rounding carries the average of a constant beyond that constant, within four steps at a decay of 0.999."""
    parameter = nn.Parameter(torch.ones(2))
    optimizer = optimizer_class([parameter], lr=0.0, adaptive_noise=True)
    for _ in range(20):
        parameter.grad = torch.full((2,), -LARGEST)
        optimizer.step()
    assert parameter.tolist() == [1.0, 1.0]
