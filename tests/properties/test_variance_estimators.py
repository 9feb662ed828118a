"""Laws of the four variance estimators, side by side on one history of several tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from rlcore.optim.gradient_variance import ESTIMATORS, TensorLayout, VarianceEstimator, measure
from rlcore.optim.scaler import VarianceGradientScaler
from tests.reference import variance_reference as reference

betas = st.sampled_from([0.0, 0.5, 0.9, 0.99])
names = st.sampled_from(sorted(ESTIMATORS))
normalizations = st.sampled_from(["squared_mean", "second_moment"])


@dataclass(frozen=True)
class History:
    """Gradients of several tensors: ``steps[t][i]`` is None where tensor i had no gradient in step t."""

    sizes: tuple[int, ...]
    steps: tuple[tuple[reference.Array | None, ...], ...]

    def of(self, position: int) -> reference.Array:
        """The gradients that a tensor had, ``[t, n]``."""
        found = [step[position] for step in self.steps]
        seen = [gradient for gradient in found if gradient is not None]
        return np.stack(seen) if seen else np.zeros((0, self.sizes[position]))

    def reordered(self, order: Sequence[int]) -> History:
        return History(tuple(self.sizes[i] for i in order), tuple(tuple(step[i] for i in order) for step in self.steps))

    def mapped(self, change: Callable[[reference.Array], reference.Array]) -> History:
        changed = ((None if gradient is None else change(gradient) for gradient in step) for step in self.steps)
        return History(self.sizes, tuple(map(tuple, changed)))

    def times(self, factor: float) -> History:
        return self.mapped(lambda gradient: gradient * factor)


@st.composite
def histories(draw: st.DrawFn, offsets: Sequence[float] = (0.0, 1.0, -30.0, 1e6), same_size: bool = False) -> History:
    """Random gradients around random means, of random scale, some missing; some tensors have one element."""
    sizes = draw(st.lists(st.integers(1, 7), min_size=1, max_size=4))
    sizes = [sizes[0]] * len(sizes) if same_size else sizes
    count = draw(st.integers(1, 10))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    centers = [draw(st.sampled_from(offsets)) * rng.normal(size=size) for size in sizes]
    scale, missing = 10.0 ** draw(st.integers(-3, 3)), draw(st.sampled_from([0.0, 0.4]))
    steps = [
        tuple(
            None if rng.random() < missing else scale * (rng.normal(size=size) + center)
            for size, center in zip(sizes, centers, strict=True)
        )
        for _ in range(count)
    ]
    return History(tuple(sizes), tuple(steps))


def weight(observations: int, beta: float) -> float:
    return (1 - beta) / (1 - beta**observations)


def feed(estimator: VarianceEstimator, history: History, beta: float) -> torch.Tensor:
    """Show an estimator the whole history; return its variances, float64 ``[N]``."""
    counts = [0] * len(history.sizes)
    for step in history.steps:
        seen = [i for i, gradient in enumerate(step) if gradient is not None]
        gradients = [torch.as_tensor(step[i]) for i in seen]
        for i in seen:
            counts[i] += 1
        commit(estimator, seen, gradients, [weight(counts[i], beta) for i in seen])
    return torch.from_numpy(estimator.variance())


def commit(estimator: VarianceEstimator, seen: Sequence[int], tensors: Sequence[Any], weights: Sequence[float]) -> None:
    positions = np.array(seen, dtype=np.int64)
    estimator.observe(positions, tensors)
    estimator.commit(positions, measure(tensors), np.array(weights))


def layouts_of(sizes: Sequence[int]) -> list[TensorLayout]:
    return [TensorLayout((size,), torch.float64, torch.device("cpu")) for size in sizes]


def variances(name: str, history: History, beta: float) -> torch.Tensor:
    return feed(ESTIMATORS[name](layouts_of(history.sizes)), history, beta)


def power(history: History) -> torch.Tensor:
    """Mean square of each tensor's gradients, what rounding is relative to; ``[N]``."""
    return torch.tensor([float((history.of(i) ** 2).mean()) if len(history.of(i)) else 0.0
                         for i in range(len(history.sizes))], dtype=torch.float64)  # fmt: skip


def assert_close(measured: torch.Tensor, expected: torch.Tensor, history: History) -> None:
    """Equal up to what a deviation loses that is rounded beside the gradients themselves."""
    lost = 1e-14 * power(history).sqrt()
    limit = 1e-9 * expected + 2 * expected.sqrt() * lost + lost.square()
    assert bool(((measured - expected).abs() <= limit).all()), (measured, expected)


@given(histories(), betas, names)
def test_equals_the_definition(history: History, beta: float, name: str) -> None:
    observed = [history.of(i) for i in range(len(history.sizes))]
    expected = [reference.ESTIMATES[name](seen, beta) if len(seen) else 0.0 for seen in observed]
    assert_close(variances(name, history, beta), torch.tensor(expected, dtype=torch.float64), history)


def normalized(history: History, beta: float, name: Any, normalization: Any) -> float:
    parameters = [nn.Parameter(torch.zeros(size, dtype=torch.float64)) for size in history.sizes]
    settings: dict[str, Any] = {"estimator": name, "normalization": normalization, "eps": 1e-300}
    scaler = VarianceGradientScaler(parameters, beta=beta, max_normalized_variance=1e300, **settings)
    for step in history.steps:
        for parameter, gradient in zip(parameters, step, strict=True):
            parameter.grad = None if gradient is None else torch.as_tensor(gradient).clone()
        scaler.update_statistics()
    return scaler.get_normalized_variance()


@given(histories(), betas, names, normalizations)
def test_the_normalized_variance_does_not_depend_on_the_scale(
    history: History, beta: float, name: str, normalization: str
) -> None:
    expected = normalized(history, beta, name, normalization)
    for factor in (2.0**-20, 2.0**20):
        assert normalized(history.times(factor), beta, name, normalization) == pytest.approx(expected, rel=1e-9)


@given(histories(), betas, names, st.integers(0, 10))
def test_a_state_saved_in_the_middle_continues_to_the_bit(history: History, beta: float, name: str, cut: int) -> None:
    first, second = History(history.sizes, history.steps[:cut]), History(history.sizes, history.steps[cut:])
    layouts = layouts_of(history.sizes)
    original = ESTIMATORS[name](layouts)
    feed(original, first, beta)
    restored = ESTIMATORS[name](layouts)
    restored.load_state_dict(original.state_dict())
    results = [feed(each, second, beta) for each in (original, restored)]
    assert torch.equal(results[1], results[0])


@given(names, st.integers(0, 2**16), st.sampled_from([1.0, 100.0]))
def test_float32_gradients_beside_a_large_mean_keep_their_variance(name: str, seed: int, offset: float) -> None:
    """A deviation of 1e-4 of the mean: its square is below the rounding of the mean's square in float32."""
    generator = torch.Generator().manual_seed(seed)
    estimator = ESTIMATORS[name]([TensorLayout((4096,), torch.float32, torch.device("cpu"))])
    gradients = [offset * (1.0 + 1e-4 * torch.randn(4096, generator=generator)) for _ in range(12)]
    for count, gradient in enumerate(gradients, start=1):
        commit(estimator, [0], [gradient], [weight(count, 0.5)])
    history = torch.stack(gradients).double().numpy()
    expected = reference.ESTIMATES[name](history, 0.5)
    # Of M only the rounding of a float32 mean is left beside the noise: 1e-8 of the squared deviation of an element.
    assert estimator.variance().item() == pytest.approx(expected, rel=1e-2, abs=1e-4 * (1e-4 * offset) ** 2)
