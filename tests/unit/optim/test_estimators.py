"""The spatial measure of one step, and the states of the estimators."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rlcore.errors import StateError
from rlcore.optim.gradient_moments import Gradients
from rlcore.optim.gradient_variance import ESTIMATORS, LARGEST_ELEMENT, TensorLayout

CPU = torch.device("cpu")
PATTERN = torch.tensor([0.5, -0.5, 0.5, -0.5], dtype=torch.float64)


def layout(*shape: int) -> TensorLayout:
    return TensorLayout(shape, torch.float64, CPU)


def show(estimator: Any, *gradients: Tensor, share: float = 0.5) -> None:
    """Commit one step of all tensors with the given weight."""
    positions, weights = np.arange(len(gradients)), np.full(len(gradients), share)
    _, moments = estimator.measure(positions, gradients, weights)
    estimator.commit(positions, moments, weights)


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [
        (torch.float32, 1e-30), (torch.float32, 1.0), (torch.float32, 1e30), (torch.float64, 1e-60),
        (torch.float64, 1e70), (torch.bfloat16, 2.0), (torch.float16, 2.0**-20),
    ],
)  # fmt: skip
def test_the_spatial_variance_is_exact_at_any_size(dtype: torch.dtype, scale: float) -> None:
    gradients = [(PATTERN * scale).to(dtype), torch.zeros(3, dtype=dtype), torch.full((2,), scale, dtype=dtype)]
    expected = float((gradients[0].double() / scale).square().mean()) * scale**2
    measured = Gradients(gradients).measure(maximum=False)[0].variance
    assert measured.dtype == np.float64
    assert measured.tolist() == [pytest.approx(expected, rel=1e-6, abs=0.0), 0.0, 0.0]


@pytest.mark.parametrize("maximum", [True, False])
@pytest.mark.parametrize(("negative", "positive", "mean"), [(1, 1, 0.0), (1, 2, 1e150), (100, 50, -1e150)])
def test_the_moments_of_the_largest_numbers_are_limited_and_finite(
    negative: int, positive: int, mean: float, maximum: bool
) -> None:
    gradient = torch.tensor([-1.7e308] * negative + [1.7e308] * positive, dtype=torch.float64)
    moments = Gradients([gradient]).measure(maximum=maximum)[0]
    assert (moments.mean.tolist(), moments.variance.tolist()) == ([mean], [1e150])


@pytest.mark.parametrize("name", list(ESTIMATORS))
def test_the_largest_magnitude_is_looked_for_only_where_it_is_asked_for(name: str) -> None:
    estimator, of_one = ESTIMATORS[name]([layout(4)]), (np.arange(1), [PATTERN], np.ones(1))
    assert estimator.measure(*of_one)[1].maximum is None
    assert estimator.measure(*of_one, maximum=True)[1].maximum == 0.5


def test_no_gradients_have_no_spatial_variances() -> None:
    assert Gradients([]).measure(maximum=False)[0].variance.tolist() == []


def test_the_spatial_variance_of_a_million_elements_beside_a_large_mean() -> None:
    gradient = 10.0 + 1e-3 * torch.randn(1_000_000, generator=torch.Generator().manual_seed(0))
    expected = gradient.double().numpy().var()
    assert Gradients([gradient]).measure(maximum=False)[0].variance.item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("name", "expected"), [("mean", 0.0), ("spatial", 0.25), ("total", 0.25), ("element", 0.25)])
def test_noise_of_opposite_signs_is_invisible_in_the_mean_alone(name: str, expected: float) -> None:
    """A pattern whose sign alternates: weights of half each make the elements' means 0 and their variances 0.25."""
    estimator = ESTIMATORS[name]([layout(4)])
    show(estimator, PATTERN, share=1.0)
    show(estimator, -PATTERN, share=0.5)
    assert estimator.variance().tolist() == [expected]


@pytest.mark.parametrize(
    ("name", "key", "value", "message"),
    [
        ("spatial", "spatial_variance", torch.tensor([-1.0]).double(), "below 0"),
        ("spatial", "spatial_variance", torch.tensor([1.0]), "float64"),
        ("spatial", "surplus", 1, "estimator 'spatial'.*surplus"),
        ("total", "spatial_variance", torch.tensor([-1.0]).double(), "below 0"),
        ("total", "variance", torch.tensor([-1.0]).double(), "below 0"),
        ("total", "mean", torch.zeros(2).double(), r"\(1,\)"),
        ("total", "surplus", 1, "estimator 'total'.*surplus"),
    ],
)
def test_a_damaged_state_of_spatial_and_total_is_refused_and_nothing_changes(
    name: str, key: str, value: Any, message: str
) -> None:
    giver, taker = ESTIMATORS[name]([layout(4)]), ESTIMATORS[name]([layout(4)])
    for gradient in (PATTERN, 1.0 - PATTERN):
        show(taker, gradient)
        show(giver, 3.0 * gradient)
    state: dict[Any, Any] = giver.state_dict()
    state[key] = value
    before = repr(taker.state_dict())
    with pytest.raises(StateError, match=message):
        taker.load_state_dict(state)
    assert repr(taker.state_dict()) == before


@pytest.mark.parametrize("name", list(ESTIMATORS))
def test_what_becomes_of_a_state_does_not_reach_the_estimator(name: str) -> None:
    estimator = ESTIMATORS[name]([layout(4)])
    for gradient in (PATTERN, 1.0 - PATTERN):
        show(estimator, gradient)
    before = repr(estimator.state_dict())
    for values in estimator.state_dict().values():
        for tensor in values if isinstance(values, list) else [values]:
            tensor.fill_(7)  # type: ignore[union-attr]
    assert repr(estimator.state_dict()) == before


def seen_twice(name: str, *sizes: int) -> Any:
    """An estimator of tensors of these sizes that has seen two steps of them, an empty one left out."""
    estimator = ESTIMATORS[name]([layout(size) for size in sizes])
    positions = np.flatnonzero(sizes)
    for step in (1.0, 3.0):
        gradients, weights = (
            [step * torch.arange(sizes[i], dtype=torch.float64) for i in positions],
            np.full(len(positions), 0.5),
        )
        estimator.commit(positions, estimator.measure(positions, gradients, weights)[1], weights)
    return estimator


@pytest.mark.parametrize("name", list(ESTIMATORS))
def test_an_empty_tensor_among_others_has_no_variance_and_a_state_that_can_be_restored(name: str) -> None:
    estimator, taker = seen_twice(name, 3, 0, 80), ESTIMATORS[name]([layout(3), layout(0), layout(80)])
    assert (estimator.variance() > 0.0).tolist() == [True, False, True]
    taker.load_state_dict(estimator.state_dict())
    assert repr(taker.state_dict()) == repr(estimator.state_dict())
    assert taker.variance().tolist() == estimator.variance().tolist()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda estimator: pickle.loads(pickle.dumps(estimator))])  # noqa: S301
@pytest.mark.parametrize("name", list(ESTIMATORS))
def test_a_copy_of_an_estimator_goes_on_as_the_estimator_does(name: str, copied: Callable[[Any], Any]) -> None:
    estimator = seen_twice(name, 4)
    twin, before = copied(estimator), estimator.variance().tolist()
    show(twin, PATTERN)
    assert estimator.variance().tolist() == before
    show(estimator, PATTERN)
    assert twin.variance().tolist() == estimator.variance().tolist() != before


@pytest.mark.parametrize("name", list(ESTIMATORS))
def test_what_is_wrong_in_a_state_is_named_with_the_estimator_or_the_entry(name: str) -> None:
    taker = ESTIMATORS[name]([layout(4)])
    with pytest.raises(StateError, match=f"^state of the estimator '{name}'.*and is None"):
        taker.load_state_dict(None)
    good: dict[Any, Any] = taker.state_dict()
    for entry, value in good.items():
        with pytest.raises(StateError, match=f"^{entry} of the estimator"):
            taker.load_state_dict({**good, entry: torch.zeros(7)})
        if isinstance(value, list):
            with pytest.raises(StateError, match=f"^{entry} of the estimator, position 0 must be .*, and is None"):
                taker.load_state_dict({**good, entry: [None]})


def test_statistics_of_elements_lie_where_their_tensor_lies() -> None:
    elsewhere = torch.zeros(2, 3, device="meta")
    state: dict[Any, Any] = ESTIMATORS["element"]([TensorLayout.of(elsewhere)]).state_dict()
    assert [(each.shape, each.device) for values in state.values() for each in values] == [
        ((2, 3), elsewhere.device)
    ] * 2


@pytest.mark.parametrize(
    ("dtype", "size", "limit"),
    [(torch.float32, 1e30, 1e16), (torch.bfloat16, 1e30, 1e16), (torch.float64, 1e100, 1e74)],
)
def test_the_variance_of_elements_is_that_of_gradients_no_larger_than_the_limit(
    dtype: torch.dtype, size: float, limit: float
) -> None:
    estimator = ESTIMATORS["element"]([TensorLayout((2,), dtype, CPU)])
    gradient = torch.tensor([size, -size], dtype=dtype)
    show(estimator, gradient, share=1.0)
    show(estimator, -gradient, share=0.5)
    assert estimator.variance().tolist() == [pytest.approx(limit**2, rel=1e-6)]


def test_statistics_of_elements_move_with_their_tensor() -> None:
    moved = TensorLayout((4,), torch.float64, torch.device("meta"))
    state: dict[Any, Any] = seen_twice("element", 4).relinked([moved], [0]).state_dict()
    assert {each.device for values in state.values() for each in values} == {moved.device}


@pytest.mark.parametrize("entry", ["means", "variances"])
def test_statistics_that_were_saved_column_by_column_go_on_as_others(entry: str) -> None:
    """The compiled loops cannot read them, whatever the gradient's memory is like."""
    generator = torch.Generator().manual_seed(0)
    history = [torch.randn(3, 5, generator=generator) for _ in range(6)]
    estimator, taker = (ESTIMATORS["element"]([TensorLayout((3, 5), torch.float32, CPU)]) for _ in range(2))
    for gradient in history[:3]:
        show(estimator, gradient)
    state: dict[Any, Any] = estimator.state_dict()
    taker.load_state_dict({**state, entry: [each.T.contiguous().T for each in state[entry]]})
    for gradient in history[3:]:
        show(estimator, gradient)
        show(taker, gradient)
    assert taker.variance() == pytest.approx(estimator.variance(), rel=1e-6)


def test_large_variances_of_elements_are_restored_as_they_were() -> None:
    estimator, taker = (ESTIMATORS["element"]([TensorLayout((2,), torch.float32, CPU)]) for _ in range(2))
    show(estimator, torch.tensor([1e15, -1e15]))
    taker.load_state_dict(estimator.state_dict())
    assert repr(taker.state_dict()) == repr(estimator.state_dict())


def test_a_variance_that_another_precision_cannot_hold_is_limited_to_the_square_of_the_largest_deviation() -> None:
    estimator = ESTIMATORS["element"]([layout(4)])
    show(estimator, 1e70 * PATTERN, share=1.0)
    show(estimator, -1e70 * PATTERN, share=0.5)
    narrow = estimator.relinked([TensorLayout((4,), torch.float32, CPU)], [0])
    assert narrow.variance().tolist() == pytest.approx([(2 * LARGEST_ELEMENT[torch.float32]) ** 2])
