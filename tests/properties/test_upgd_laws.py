"""Laws of the utility gate and of the optimizers built on it, for any input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor, nn

from rlcore.optim import upgd
from rlcore.optim.upgd import UPGD, AdaptiveUPGD
from rlcore.optim.upgd_step import bounded, gate, utility_extremes, weight_utility

BOTH = pytest.mark.parametrize("optimizer_class", [UPGD, AdaptiveUPGD])
LARGEST = float(np.finfo(np.float32).max)
SIZES = st.integers(1, 6)
FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)


def tensors(low: float, high: float, dtype: type[np.floating[Any]] = np.float32) -> st.SearchStrategy[Tensor]:
    elements = st.floats(low, high, width=32 if dtype is np.float32 else 64)
    return SIZES.flatmap(lambda size: arrays(dtype, size, elements=elements)).map(torch.from_numpy)


ANY = tensors(-LARGEST, LARGEST)


def protect(*utilities: Tensor) -> list[Tensor]:
    scale = upgd.utility_scale(utility_extremes(utilities))
    return [gate(utility, scale) for utility in utilities]


@given(ANY, ANY)
@example(torch.tensor([-0.5, -0.1]), torch.tensor([-0.3]))
def test_larger_utility_is_never_protected_less(first: Tensor, second: Tensor) -> None:
    utilities = torch.cat([bounded(first), bounded(second)])
    shares = torch.cat(protect(bounded(first), bounded(second)))
    in_order = shares[utilities.argsort(stable=True)]
    # The vectorised sigmoid may be off by a unit in the last place, in either direction.
    assert bool((in_order.diff() >= -2e-7).all())


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


SILENT = {"lr": 0.05, "sigma": 0.0, "weight_decay": 0.1, "beta_utility": 0.9}
NOISY = {**SILENT, "sigma": 0.5}


@dataclass(frozen=True)
class Problem:
    """Where the weights start, and the gradients ``steps[t][i]`` that they get whatever becomes of them; float64."""

    starts: list[Tensor]
    steps: list[list[Tensor]] = field(repr=False)

    def mapped(self, change: Callable[[list[Tensor]], list[Tensor]]) -> Problem:
        """The same change made to the weights and to the gradients of every step."""
        return Problem(change(self.starts), [change(gradients) for gradients in self.steps])


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """One to four tensors and one to five steps; some gradients and weights are zero, as after a ReLU."""
    sizes = draw(st.lists(st.integers(1, 7), min_size=1, max_size=4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    zeros = draw(st.sampled_from([0.0, 0.3, 1.0]))

    def tensors() -> list[Tensor]:
        return [torch.from_numpy(rng.normal(size=size) * (rng.random(size) >= zeros)) for size in sizes]

    return Problem(tensors(), [tensors() for _ in range(draw(st.integers(1, 5)))])


def outcome(
    optimizer_class: Any,
    problem: Problem,
    *,
    groups: Sequence[Sequence[int]] | None = None,
    with_closure: bool = False,
    **settings: Any,
) -> list[Tensor]:
    """Take all steps; return where the weights end."""
    parameters = [nn.Parameter(start.clone()) for start in problem.starts]
    chosen = [parameters] if groups is None else [[parameters[i] for i in group] for group in groups]
    optimizer = optimizer_class([{"params": group} for group in chosen], seed=11, **settings)
    evaluated = []
    for index, gradients in enumerate(problem.steps):

        def evaluate(index: int = index, gradients: list[Tensor] = gradients) -> float:
            assert torch.is_grad_enabled()
            evaluated.append(index)
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient.clone()
            return 2.5

        if with_closure:
            with torch.no_grad():
                assert optimizer.step(evaluate) == 2.5
        else:
            evaluate()
            assert optimizer.step() is None
    assert evaluated == list(range(len(problem.steps)))
    return [parameter.detach() for parameter in parameters]


def same(left: Sequence[Tensor], right: Sequence[Tensor]) -> bool:
    """Equal to the bit."""
    return all(torch.equal(one, other) for one, other in zip(left, right, strict=True))


@BOTH
@given(problem=problems(), exponent=st.integers(-10, 10))
def test_the_scale_of_the_gradients_can_be_moved_into_the_settings(
    optimizer_class: Any, problem: Problem, exponent: int
) -> None:
    """UPGD is linear in the gradient, AdaptiveUPGD does not depend on its scale, and the gate does so in neither.

    Powers of two are exact in floating point, so nothing may differ.
    """
    factor = 2.0**exponent
    scaled = Problem(problem.starts, [[gradient * factor for gradient in step] for step in problem.steps])
    if optimizer_class is UPGD:
        lr, weight_decay = NOISY["lr"] / factor, NOISY["weight_decay"] * factor
        moved = {**NOISY, "lr": lr, "weight_decay": weight_decay, "sigma": NOISY["sigma"] * factor}
    else:
        moved = {**NOISY, "eps": 1e-8 * factor}
    assert same(outcome(optimizer_class, scaled, **moved), outcome(optimizer_class, problem, **NOISY))


@BOTH
@given(problem=problems(), random=st.randoms(use_true_random=False))
def test_the_order_of_the_parameters_does_not_matter(optimizer_class: Any, problem: Problem, random: Any) -> None:
    """Only the last bits may differ: which elements are computed many at a time depends on their place."""
    order = list(range(len(problem.starts)))
    random.shuffle(order)

    def reordered(tensors: list[Tensor]) -> list[Tensor]:
        return [tensors[position] for position in order]

    ends = outcome(optimizer_class, problem.mapped(reordered), **SILENT)
    expected = reordered(outcome(optimizer_class, problem, **SILENT))
    torch.testing.assert_close(ends, expected, rtol=1e-12, atol=1e-13)


@BOTH
@given(problem=problems())
def test_the_order_of_the_elements_does_not_matter(optimizer_class: Any, problem: Problem) -> None:
    def reversed_within(tensors: list[Tensor]) -> list[Tensor]:
        return [tensor.flip(0) for tensor in tensors]

    ends = outcome(optimizer_class, problem.mapped(reversed_within), **SILENT)
    expected = reversed_within(outcome(optimizer_class, problem, **SILENT))
    torch.testing.assert_close(ends, expected, rtol=1e-12, atol=1e-13)


@BOTH
@given(problem=problems(), cut=st.integers(0, 7))
def test_a_tensor_may_be_split_in_two(optimizer_class: Any, problem: Problem, cut: int) -> None:
    """The gate compares weights across tensors, so it does not matter which tensor a weight stands in."""

    def split(tensors: list[Tensor]) -> list[Tensor]:
        return [tensors[0][:cut], tensors[0][cut:], *tensors[1:]]

    ends = outcome(optimizer_class, problem.mapped(split), **SILENT)
    expected = split(outcome(optimizer_class, problem, **SILENT))
    torch.testing.assert_close(ends, expected, rtol=1e-12, atol=1e-13)


@BOTH
@given(problem=problems(), cut=st.integers(0, 4), adaptive_noise=st.booleans())
def test_parameters_may_be_split_into_groups(
    optimizer_class: Any, problem: Problem, cut: int, adaptive_noise: bool
) -> None:
    """Also with noise, which counts parameters through all groups."""
    positions = list(range(len(problem.starts)))
    groups = [group for group in (positions[:cut], positions[cut:]) if group]
    settings = {**NOISY, "adaptive_noise": adaptive_noise}
    apart = outcome(optimizer_class, problem, groups=groups, **settings)
    assert same(apart, outcome(optimizer_class, problem, **settings))


@BOTH
@given(problem=problems())
def test_a_closure_is_the_same_as_its_evaluation_before_the_step(optimizer_class: Any, problem: Problem) -> None:
    with_closure = outcome(optimizer_class, problem, with_closure=True, **NOISY)
    assert same(with_closure, outcome(optimizer_class, problem, **NOISY))
