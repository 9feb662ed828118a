"""The spatial measure of one step, the elements that a sketch watches, and the states of the estimators."""

from __future__ import annotations

import copy
import pickle
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rlcore.errors import StateError
from rlcore.optim.estimators import ESTIMATORS, LARGEST_ELEMENT
from rlcore.optim.gradient_moments import Gradients
from rlcore.optim.sketch import SKETCH_SIZE, SketchEstimator
from rlcore.optim.tensor_statistics import TensorLayout

CPU = torch.device("cpu")
PATTERN = torch.tensor([0.5, -0.5, 0.5, -0.5], dtype=torch.float64)


def layout(*shape: int) -> TensorLayout:
    return TensorLayout(shape, torch.float64, CPU)


def show(estimator: Any, *gradients: Tensor, share: float = 0.5) -> None:
    """Commit one step of all tensors with the given weight."""
    positions, measured = np.arange(len(gradients)), Gradients.measure(gradients)
    weights = np.full(len(gradients), share)
    estimator.commit(positions, measured.moments, estimator.measure(positions, measured), weights)


def watched(estimator: SketchEstimator) -> list[list[int]]:
    state: dict[Any, Any] = estimator.state_dict()
    return [drawn.tolist() for drawn in state["coordinates"]]


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
    measured = Gradients.measure(gradients).spatial_variances()
    assert measured.dtype == np.float64
    assert measured.tolist() == [pytest.approx(expected, rel=1e-6, abs=0.0), 0.0, 0.0]


@pytest.mark.parametrize(("negative", "positive"), [(1, 1), (1, 2), (50, 100)])
def test_the_spatial_variance_of_the_largest_numbers_is_limited_and_finite(negative: int, positive: int) -> None:
    gradient = torch.tensor([-1.7e308] * negative + [1.7e308] * positive, dtype=torch.float64)
    assert Gradients.measure([gradient]).spatial_variances().tolist() == [1e150]


def test_no_gradients_have_no_spatial_variances() -> None:
    assert Gradients.measure([]).spatial_variances().tolist() == []


def test_the_spatial_variance_of_a_million_elements_beside_a_large_mean() -> None:
    gradient = 10.0 + 1e-3 * torch.randn(1_000_000, generator=torch.Generator().manual_seed(0))
    expected = gradient.double().numpy().var()
    assert Gradients.measure([gradient]).spatial_variances().item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "expected"), [("mean", 0.0), ("spatial", 0.25), ("total", 0.25), ("element", 0.25), ("sketch", 0.25)]
)
def test_noise_of_opposite_signs_is_invisible_in_the_mean_alone(name: str, expected: float) -> None:
    """A pattern whose sign alternates: weights of half each make the elements' means 0 and their variances 0.25."""
    estimator = ESTIMATORS[name]([layout(4)])
    show(estimator, PATTERN, share=1.0)
    show(estimator, -PATTERN, share=0.5)
    assert estimator.variance().tolist() == [expected]


def test_a_sketch_watches_all_of_a_small_tensor_and_few_elements_all_over_a_large_one() -> None:
    all_of_it, some, others = watched(SketchEstimator([layout(8, 8), layout(100, 100), layout(10_000)]))
    assert all_of_it == list(range(64))
    for drawn in (some, others):
        assert sorted(set(drawn)) == drawn
        assert len(drawn) == SKETCH_SIZE
        assert drawn[0] < 1_000
        assert drawn[-1] >= 9_000
    assert some != others


def test_a_sketch_of_a_huge_tensor_takes_no_more_than_one_of_a_small_tensor() -> None:
    """A tensor that no machine could hold, or list the elements of."""
    sketch = SketchEstimator([layout(10**6, 10**6)])
    (drawn,) = watched(sketch)
    assert (len(drawn), drawn[-1] < 10**12) == (SKETCH_SIZE, True)
    assert sketch.variance().tolist() == [0.0]


def test_two_sketches_of_a_network_agree_and_draw_from_no_global_generator() -> None:
    layouts = [layout(300), layout(20, 20)]
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # type: ignore[index]
    first = watched(SketchEstimator(layouts))
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == states  # type: ignore[index]
    random.random(), torch.rand(1)
    assert watched(SketchEstimator(layouts)) == first
    # The draw is defined by position and size, so that other processes make the same one.
    assert first == [sorted(random.Random(f"{i} {n}").sample(range(n), SKETCH_SIZE)) for i, n in enumerate((300, 400))]


def test_a_sketch_watches_the_same_elements_whatever_the_memory_format() -> None:
    gradients = torch.randn(20, 16, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    plain, strided = (SketchEstimator([layout(16, 3, 3)]) for _ in range(2))
    for gradient in gradients:
        show(plain, gradient)
        show(strided, gradient.permute(1, 2, 0).contiguous().permute(2, 0, 1))
    assert plain.variance().tolist() == strided.variance().tolist()
    assert plain.variance().item() > 0.1


def test_a_loaded_sketch_goes_on_with_the_elements_of_the_state_through_relinks() -> None:
    """Also where another version of the program drew others."""
    sketch = SketchEstimator([layout(5), layout(100)])
    own, zeros = watched(sketch), [torch.zeros(2).double(), torch.zeros(3).double()]
    coordinates = [torch.tensor([1, 3]), torch.tensor([7, 8, 99])]
    sketch.load_state_dict({"coordinates": coordinates, "means": zeros, "variances": zeros})
    assert watched(sketch) == [[1, 3], [7, 8, 99]]
    assert watched(sketch.relinked([layout(5), layout(100)], [1])) == [own[0], [7, 8, 99]]
    relinked = sketch.relinked([layout(5), layout(100)], [0, 1])
    noise = torch.zeros(5, dtype=torch.float64)
    noise[3] = 2.0
    for sign in (1.0, -1.0):
        show(relinked, sign * noise, torch.zeros(100, dtype=torch.float64))
    # Of the two elements that are watched one has had the values 0, 2 and -2, with weights 1/4, 1/4 and 1/2.
    assert relinked.variance().tolist() == [0.5 * (0.75 * 4 - 0.25), 0.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sketch_watches_its_own_tensors_where_another_has_no_gradient(dtype: torch.dtype) -> None:
    """Of three tensors the second and the third are seen, one constant and one that alternates between 10 and 30."""
    subject = SketchEstimator([TensorLayout((size,), dtype, CPU) for size in (2, 4, 4)])
    for value in (10.0, 30.0):
        seen, gradients = (
            np.array([1, 2]),
            Gradients.measure([torch.ones(4, dtype=dtype), torch.full((4,), value, dtype=dtype)]),
        )
        subject.commit(seen, gradients.moments, subject.measure(seen, gradients), np.array([0.5, 0.5]))
    (_, second, third) = subject.state_dict()["means"]  # type: ignore[misc]
    assert (second.tolist(), third.tolist()) == ([0.75] * 4, [17.5] * 4)  # type: ignore[union-attr]


def with_coordinates(*values: object) -> Callable[[dict[Any, Any]], None]:
    return lambda state: state.__setitem__("coordinates", list(values))


GOOD = torch.arange(5)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (with_coordinates(GOOD), "a list of 2 tensors"),
        (lambda state: state.update(coordinates=GOOD), "a list of 2 tensors"),
        (lambda state: state.pop("coordinates"), "missing keys.*coordinates"),
        (lambda state: state.pop("means"), "missing keys.*means"),
        (with_coordinates(GOOD, torch.tensor([2, 100])), r"position 1: expected rising numbers below 100.*\[2, 100\]"),
        (with_coordinates(GOOD, torch.tensor([2, 2])), "rising"),
        (with_coordinates(GOOD, torch.tensor([3, 2])), "rising"),
        (with_coordinates(GOOD, torch.tensor([-1, 2])), "below 0"),
        (with_coordinates(GOOD, torch.tensor([], dtype=torch.int64)), "at least one"),
        (with_coordinates(GOOD, torch.tensor([1.0, 2.0])), "coordinates.*, position 1: expected a torch.int64"),
        (with_coordinates(GOOD, torch.tensor([[1, 2]])), "int64"),
        (with_coordinates(GOOD, [1, 2]), r"position 1: expected a torch.int64 tensor, got \[1, 2\] \(list\)"),
        (with_coordinates(GOOD, torch.tensor([1, 2])), r"means.*position 1.*\(2,\)"),
        (lambda state: state["variances"].__setitem__(0, -torch.ones(5)), "below 0"),
    ],
)
def test_a_damaged_state_of_a_sketch_is_refused_and_nothing_changes(
    damage: Callable[[dict[Any, Any]], None], message: str
) -> None:
    layouts = [layout(5), layout(100)]
    giver, taker = SketchEstimator(layouts), SketchEstimator(layouts)
    show(taker, torch.ones(5).double(), torch.ones(100).double())
    state, before = giver.state_dict(), repr(taker.state_dict())
    damage(state)
    with pytest.raises(StateError, match=message):
        taker.load_state_dict(state)
    assert repr(taker.state_dict()) == before


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
        gradients = Gradients.measure([step * torch.arange(sizes[i], dtype=torch.float64) for i in positions])
        estimator.commit(
            positions, gradients.moments, estimator.measure(positions, gradients), np.full(len(positions), 0.5)
        )
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
    with pytest.raises(StateError, match=f"^state of the estimator '{name}'.*got None"):
        taker.load_state_dict(None)
    good: dict[Any, Any] = taker.state_dict()
    for entry, value in good.items():
        with pytest.raises(StateError, match=f"^{entry} of the estimator"):
            taker.load_state_dict({**good, entry: torch.zeros(7)})
        if isinstance(value, list):
            with pytest.raises(StateError, match=f"^{entry} of the estimator, position 0: .* got None"):
                taker.load_state_dict({**good, entry: [None]})


@pytest.mark.parametrize(
    ("count", "shown"),
    [(8, "[0, 1, 2, 3, 4, 5, 6, 6]"), (9, "[0, 1, 2, 3, 4, 5, 6, 7]..."), (10, "[0, 1, 2, 3, 4, 5, 6, 7]...")],
)
def test_of_a_drawing_that_is_refused_the_first_eight_numbers_are_shown(count: int, shown: str) -> None:
    taker = SketchEstimator([layout(100)])
    drawn = torch.tensor([*range(count - 1), count - 2])
    state: dict[Any, Any] = {**taker.state_dict(), "coordinates": [drawn]}
    with pytest.raises(StateError, match=re.escape(f"got {shown}. Nothing was changed.")):
        taker.load_state_dict(state)


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
