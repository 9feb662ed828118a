"""Tensors as one vector, or in stretches: the numbers of one tensor at a time, and the state that everybody sees."""

from __future__ import annotations

import copy
from typing import Any, TypeAlias

import pytest
import torch
from torch import Tensor, nn

from rlcore.optim import upgd_updates
from rlcore.optim.upgd import UtilityGatedOptimizer
from rlcore.optim.upgd_updates import Bundle, Rooms, Stretch, Update
from tests.unit.optim.upgd_steps import BOTH, assert_same, parameters_of, snapshot

SHAPES = [(5, 3), (7,), (2, 3, 4), (1,), (40, 30)]
Places: TypeAlias = frozenset[tuple[int, int]]
THIRDS: Places = frozenset((step, index) for step in range(30) for index in range(5) if (step + index) % 3 == 0)
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-13}


def make(optimizer_class: Any, dtype: torch.dtype = torch.float32, **settings: Any) -> torch.optim.Optimizer:
    generator = torch.Generator().manual_seed(0)
    tensors = [nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for shape in SHAPES]
    groups = [{"params": tensors[:3]}, {"params": tensors[3:], "weight_decay": 0.1}]
    optimizer: torch.optim.Optimizer = optimizer_class(groups, lr=0.01, sigma=0.1, **settings)
    return optimizer


def steps(optimizer: torch.optim.Optimizer, first: int, count: int, absent: Places = frozenset()) -> None:
    """Steps whose gradients and noise depend on the step index alone.

    :param absent: (step, index of the parameter) without a gradient
    """
    for step in range(first, first + count):
        generator = torch.Generator().manual_seed(step)
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        for index, parameter in enumerate(parameters):
            gradient = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
            parameter.grad = None if (step, index) in absent else gradient
        torch.manual_seed(step)
        optimizer.step()


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch) -> list[list[Update]]:
    """What each step changed."""
    seen: list[list[Update]] = []
    original = UtilityGatedOptimizer._change

    def recorded(self: Any, updates: list[Update]) -> None:
        seen.append(updates)
        original(self, updates)

    monkeypatch.setattr(UtilityGatedOptimizer, "_change", recorded)
    return seen


@BOTH
@pytest.mark.parametrize("stretch", [2**17, 100, 6], ids=["vectors", "vectors and stretches", "stretches"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("absent", [frozenset(), THIRDS], ids=["all", "two of three"])
def test_the_numbers_are_those_of_one_tensor_at_a_time(
    optimizer_class: Any, dtype: torch.dtype, absent: Places, stretch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgd_updates, "STRETCH", stretch)
    together = make(optimizer_class, dtype)
    steps(together, 0, 30, absent)
    monkeypatch.setattr(upgd_updates, "STRETCH", 2**17)
    monkeypatch.setattr(upgd_updates, "can_be_bundled", lambda *_: False)
    apart = make(optimizer_class, dtype)
    steps(apart, 0, 30, absent)
    near = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
    torch.testing.assert_close(parameters_of(together), parameters_of(apart), **near)
    for left, right in zip(together.state.values(), apart.state.values(), strict=True):
        assert left.keys() == right.keys()
        for name in left:
            torch.testing.assert_close(left[name], right[name], **near)


@BOTH
def test_a_group_is_one_vector_where_it_can_be(optimizer_class: Any, changed: list[list[Update]]) -> None:
    steps(make(optimizer_class), 0, 1)
    assert [[len(each.members) for each in updates] for updates in changed] == [[3, 2]]
    assert all(isinstance(update, Bundle) for update in changed[0])


@BOTH
def test_a_large_tensor_is_changed_in_stretches_between_vectors(
    optimizer_class: Any, changed: list[list[Update]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes 15, 7, 24 and 1, 1200: in stretches of 20 the third is cut into 2, the fifth into 60."""
    monkeypatch.setattr(upgd_updates, "STRETCH", 20)
    optimizer = make(optimizer_class)
    steps(optimizer, 0, 1)
    kinds = [type(update) for update in changed[0]]
    assert kinds == [Bundle, Stretch, Stretch, Update, *[Stretch] * 60]
    states = [value for state in optimizer.state.values() for value in state.values()]
    assert {value for value in states if isinstance(value, int)} == {1}


@BOTH
@pytest.mark.parametrize(
    "case",
    [
        "adaptive noise",
        "16 bits",
        "no larger",
        "a transposed parameter",
        "a transposed gradient",
        "a transposed average",
    ],
)
def test_what_makes_no_stretches_is_changed_as_a_whole(
    optimizer_class: Any, case: str, changed: list[list[Update]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgd_updates, "STRETCH", 40 if case == "no larger" else 20)
    parameter = nn.Parameter(torch.randn(8, 5, dtype=torch.bfloat16 if case == "16 bits" else torch.float32))
    if case == "a transposed parameter":
        parameter.data = parameter.detach().T.contiguous().T
    parameter.grad = torch.ones_like(parameter)
    if case == "a transposed gradient":
        parameter.grad = torch.ones(5, 8).T
    optimizer = optimizer_class([parameter], lr=0.01, sigma=0.1, adaptive_noise=case == "adaptive noise")
    optimizer.step()
    if case == "a transposed average":
        optimizer.state[parameter]["utility"] = torch.zeros(5, 8).T
        optimizer.step()
    assert [type(update) for update in changed[-1]] == [Update]


@BOTH
def test_a_large_tensor_without_noise_takes_adaptive_noise_as_it_comes(
    optimizer_class: Any, changed: list[list[Update]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgd_updates, "STRETCH", 20)
    parameter = nn.Parameter(torch.ones(40))
    parameter.grad = torch.ones(40)
    optimizer_class([parameter], sigma=0.0, adaptive_noise=True).step()
    assert [type(update) for update in changed[0]] == [Stretch] * 2


@BOTH
def test_a_gradient_of_fewer_elements_than_the_exchanged_memory_of_its_parameter_changes_nothing(
    optimizer_class: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgd_updates, "STRETCH", 20)
    parameter = nn.Parameter(torch.ones(40))
    parameter.grad = torch.ones(40)
    parameter.data = torch.ones(80)
    with pytest.raises(ValueError, match="shorter"):
        optimizer_class([parameter], lr=0.1).step()
    assert parameter.tolist() == [1.0] * 80


def test_room_is_kept_for_vectors_of_the_same_size_or_less() -> None:
    rooms, like = Rooms(), torch.ones(5)
    memory = rooms.of("gate", like).data_ptr()
    assert [rooms.of("gate", like, size).data_ptr() for size in (5, 2, None)] == [memory] * 3
    assert [len(rooms.of("gate", like, size)) for size in (2, None, 9, 5)] == [2, 5, 9, 5]


def test_a_stretch_has_the_name_of_its_parameter() -> None:
    update = Update(torch.ones(5), torch.ones(5), {"param_names": ["critic.weight"]}, (0, 0), {})
    assert [stretch.label for stretch in Stretch.all_of(update, Rooms())] == ["critic.weight"]


@BOTH
def test_a_gradient_beyond_the_limit_is_limited_where_it_is_read_and_stays_as_it_was(
    optimizer_class: Any, changed: list[list[Update]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgd_updates, "STRETCH", 20)
    parameter = nn.Parameter(torch.zeros(40))
    parameter.grad = torch.full((40,), 3e38)
    optimizer_class([parameter], lr=1e-30, sigma=0.0).step()
    assert [type(update) for update in changed[0]] == [Update]
    assert float(changed[0][0].gradient.amax()) < 1e38
    assert float(parameter.grad.amin()) > 2e38
    assert bool(parameter.detach().isfinite().all())


@BOTH
@pytest.mark.parametrize("case", ["adaptive noise", "16 bits", "one tensor", "another number of steps"])
def test_what_makes_no_vector_is_changed_tensor_by_tensor(
    optimizer_class: Any, case: str, changed: list[list[Update]]
) -> None:
    optimizer = make(optimizer_class, torch.bfloat16 if case == "16 bits" else torch.float32)
    if case == "adaptive noise":
        for group in optimizer.param_groups:
            group["adaptive_noise"] = True
    absent = {
        "one tensor": frozenset((step, index) for step in (0, 1) for index in (1, 2, 3)),
        "another number of steps": frozenset({(0, 0), (0, 3)}),
    }.get(case, frozenset())
    steps(optimizer, 0, 2, absent)
    assert not any(isinstance(update, Bundle) for update in changed[-1])


@BOTH
def test_a_vector_without_noise_takes_adaptive_noise_as_it_comes(
    optimizer_class: Any, changed: list[list[Update]]
) -> None:
    optimizer = make(optimizer_class, adaptive_noise=True)
    for group in optimizer.param_groups:
        group["sigma"] = 0.0
    steps(optimizer, 0, 1)
    assert all(isinstance(update, Bundle) for update in changed[0])


@BOTH
def test_a_vector_goes_on_without_a_parameter_that_has_no_gradient(
    optimizer_class: Any, changed: list[list[Update]], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_second: Places = frozenset({(1, 1)})
    together, apart = make(optimizer_class), make(optimizer_class)
    steps(together, 0, 2, without_second)
    assert [[len(each.members) for each in updates] for updates in changed] == [[3, 2], [2, 2]]
    monkeypatch.setattr(upgd_updates, "can_be_bundled", lambda *_: False)
    steps(apart, 0, 2, without_second)
    torch.testing.assert_close(parameters_of(together), parameters_of(apart), rtol=1e-6, atol=1e-6)


@BOTH
def test_averages_stay_where_they_are_from_step_to_step(optimizer_class: Any) -> None:
    optimizer = make(optimizer_class)
    steps(optimizer, 0, 1)
    places = [value.data_ptr() for state in optimizer.state.values() for value in tensors_in(state)]
    steps(optimizer, 1, 2)
    assert [value.data_ptr() for state in optimizer.state.values() for value in tensors_in(state)] == places


def tensors_in(state: dict[str, Any]) -> list[Tensor]:
    return [value for value in state.values() if isinstance(value, Tensor)]


@BOTH
def test_parameters_may_change_their_precision_and_take_their_state_along(optimizer_class: Any) -> None:
    optimizer, expected = make(optimizer_class), make(optimizer_class, torch.float64)
    steps(optimizer, 0, 2)
    saved = copy.deepcopy(optimizer.state_dict())
    for mine, other in zip(every_parameter(optimizer), every_parameter(expected), strict=True):
        mine.grad = None
        mine.data = mine.detach().double()
        other.data = mine.detach().clone()
    for each in (optimizer, expected):
        each.load_state_dict(saved)
        steps(each, 2, 2)
    assert_same(parameters_of(optimizer), parameters_of(expected))


def every_parameter(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


@BOTH
@pytest.mark.parametrize("way", ["load", "replace", "in place"])
def test_averages_that_others_change_are_those_of_the_next_step(optimizer_class: Any, way: str) -> None:
    source, taker = make(optimizer_class), make(optimizer_class)
    steps(source, 100, 3)
    steps(taker, 0, 3)
    if way == "load":
        taker.load_state_dict(source.state_dict())
    for given, taken in zip(source.state.values(), taker.state.values(), strict=True):
        for name, value in given.items():
            if way == "replace":
                taken[name] = value.clone() if isinstance(value, Tensor) else value
            elif way == "in place" and isinstance(value, Tensor):
                taken[name].copy_(value)
    for given, taken in zip(parameters_of(source), [p for g in taker.param_groups for p in g["params"]], strict=True):
        taken.data = given.clone()
    for optimizer in (source, taker):
        steps(optimizer, 7, 2)
    assert_same(parameters_of(taker), parameters_of(source))
    assert_same(list(taker.state.values()), list(source.state.values()))


@BOTH
def test_copies_share_nothing_and_go_on_alike(optimizer_class: Any) -> None:
    optimizer = make(optimizer_class)
    steps(optimizer, 0, 3)
    twin = copy.deepcopy(optimizer)
    before = snapshot(twin)
    steps(optimizer, 3, 2)
    assert_same(snapshot(twin)[:2], before[:2])
    steps(twin, 3, 2)
    assert_same(snapshot(twin), snapshot(optimizer))


@BOTH
def test_a_parameter_whose_memory_is_exchanged_is_still_the_one_that_is_changed(optimizer_class: Any) -> None:
    optimizer, expected = make(optimizer_class), make(optimizer_class)
    for each in (optimizer, expected):
        steps(each, 0, 1)
    exchanged = optimizer.param_groups[0]["params"][0]
    exchanged.data = exchanged.detach().clone().T.contiguous().T
    for each in (optimizer, expected):
        steps(each, 1, 2)
    assert_same(parameters_of(optimizer), parameters_of(expected))


@BOTH
@pytest.mark.parametrize("stretch", [2**17, 6], ids=["vectors", "stretches"])
def test_a_step_goes_on_from_rescaled_utilities(
    optimizer_class: Any, stretch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgd_updates, "STRETCH", stretch)
    rescaled, loaded = make(optimizer_class), make(optimizer_class)
    for optimizer in (rescaled, loaded):
        steps(optimizer, 0, 3)
    assert isinstance(rescaled, UtilityGatedOptimizer)
    rescaled.rescale_utilities(rescaled.param_groups[0]["params"][:2], 50.0)
    state = loaded.state_dict()
    for number in range(2):
        state["state"][number]["utility"] = 50.0 * state["state"][number]["utility"]
    loaded.load_state_dict(state)
    for optimizer in (rescaled, loaded):
        steps(optimizer, 3, 2)
    assert_same(parameters_of(rescaled), parameters_of(loaded))
    assert_same(rescaled.state_dict(), loaded.state_dict())


@BOTH
def test_utilities_stay_finite_when_rescaled_and_what_has_none_gets_none(optimizer_class: Any) -> None:
    optimizer = make(optimizer_class)
    first, *others = optimizer.param_groups[0]["params"]
    first.grad = torch.ones_like(first)
    optimizer.step()
    assert isinstance(optimizer, UtilityGatedOptimizer)
    for _ in range(3):
        optimizer.rescale_utilities([first, *others], 1e30)
    assert optimizer.state[first]["utility"].isfinite().all()
    assert list(optimizer.state) == [first]


@BOTH
@pytest.mark.parametrize("factor", [1e60, 1e-60])
def test_utilities_are_rescaled_by_factors_that_their_own_precision_cannot_hold(
    optimizer_class: Any, factor: float
) -> None:
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = optimizer_class([weight])
    weight.grad = torch.ones(2)
    optimizer.step()
    optimizer.state[weight]["utility"].copy_(torch.tensor([0.0, 1e-30 if factor > 1 else 1e30]))
    optimizer.rescale_utilities([weight], factor)
    limit = torch.finfo(torch.float32).max / 4
    assert optimizer.state[weight]["utility"].tolist() == [0.0, pytest.approx(1e30 if factor > 1 else 1e-30)]
    optimizer.rescale_utilities([weight], 1e60)
    assert optimizer.state[weight]["utility"].tolist() == [0.0, pytest.approx(limit if factor > 1 else 1e30)]


@BOTH
@pytest.mark.parametrize("position", range(3))
@pytest.mark.parametrize("missing", ["utility", "step"])
def test_what_one_member_lacks_starts_fresh_for_it_alone(optimizer_class: Any, position: int, missing: str) -> None:
    optimizer = make(optimizer_class)
    steps(optimizer, 0, 10)
    saved = copy.deepcopy(optimizer.state_dict())
    del saved["state"][position][missing]
    optimizer.load_state_dict(saved)
    steps(optimizer, 10, 3)
    counters = [optimizer.state[parameter]["step"] for parameter in optimizer.param_groups[0]["params"]]
    assert counters == [3 if index == position else 13 for index in range(3)]
