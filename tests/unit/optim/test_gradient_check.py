"""Steps taken before it is known whether their gradients are finite: same numbers, and no trace of a bad one."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rlcore.errors import NonFiniteGradientError
from rlcore.optim import gradient_check, upgd_updates
from rlcore.optim.gradient_check import MOST_UNANSWERED, DeferredCheck
from rlcore.optim.upgd import UPGD
from rlcore.optim.upgd_updates import Stretch, Update, Workspace
from tests.unit.optim.device_stand_in import Watch, stand_in
from tests.unit.optim.upgd_steps import BOTH, assert_same, parameters_of, take_steps

NEVER = 10**9
SHAPES = ((5, 3), (7,), (), (40, 30), (2, 3))
KINDS: dict[str, tuple[torch.dtype, dict[str, Any]]] = {
    "vectors": (torch.float32, {"sigma": 0.1}),
    "vectors of 64 bits": (torch.float64, {"sigma": 0.1}),
    "without noise": (torch.float32, {"sigma": 0.0, "adaptive_noise": True}),
    "adaptive noise": (torch.float32, {"sigma": 0.1, "adaptive_noise": True}),
    "16 bits": (torch.bfloat16, {"sigma": 0.1, "adaptive_noise": True}),
}
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)


def make(optimizer_class: Any, kind: str) -> Any:
    """Two groups, the second with a parameter of 64 bits and without memory in its utility."""
    dtype, settings = KINDS[kind]
    generator = torch.Generator().manual_seed(0)
    dtypes = (*(dtype,) * (len(SHAPES) - 1), torch.float64)
    pairs = zip(SHAPES, dtypes, strict=True)
    tensors = [nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for shape, dtype in pairs]
    with torch.no_grad():
        tensors[0][0] = -0.0
    groups = [{"params": tensors[:3]}, {"params": tensors[3:], "weight_decay": 0.1, "beta_utility": 0.0}]
    return optimizer_class(groups, lr=0.01, **settings)


def parameters(optimizer: Any) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def step_with(optimizer: Any, bad: float, *indices: int) -> None:
    """A step in which one element of the gradients of some parameters is ``bad``."""
    for index, parameter in enumerate(parameters(optimizer)):
        parameter.grad = torch.ones_like(parameter)
        if index in indices:
            parameter.grad.view(-1)[-1] = bad
    optimizer.step()


def trace(optimizer: Any) -> tuple[list[Tensor], list[Any]]:
    """Copies of all parameters and their states, taken without asking the optimizer."""
    return parameters_of(optimizer), copy.deepcopy(
        [optimizer.state.get(parameter) for parameter in parameters(optimizer)]
    )


def bits(trace: Any) -> Any:
    """Tensors as bytes, so that -0 is not 0."""
    if isinstance(trace, Tensor):
        return trace.contiguous().view(-1).view(torch.uint8).tolist()
    if isinstance(trace, dict):
        return {key: bits(value) for key, value in trace.items()}
    return [bits(each) for each in trace] if isinstance(trace, (list, tuple)) else trace


@BOTH
@EVERY_KIND
def test_the_numbers_are_those_of_checked_steps(
    optimizer_class: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the largest parameter in stretches on the one side."""
    monkeypatch.setattr(upgd_updates, "STRETCH", 100)
    expected, optimizer = make(optimizer_class, kind), make(optimizer_class, kind)
    take_steps(expected, 0, 30)
    device = stand_in(monkeypatch, lag=3)
    take_steps(optimizer, 0, 30)
    assert (device.steps, device.waited) == (30, [])
    torch.testing.assert_close(parameters_of(optimizer), parameters_of(expected), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(trace(optimizer)[1], trace(expected)[1], rtol=1e-6, atol=1e-6)
    assert not torch.equal(parameters_of(optimizer)[0], parameters_of(make(optimizer_class, kind))[0])


@BOTH
@EVERY_KIND
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(("steps_before", "lag"), [(0, 0), (0, 3), (2, 1), (3, 4)])
def test_a_step_that_is_not_finite_leaves_no_trace(
    optimizer_class: Any, kind: str, bad: float, steps_before: int, lag: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, lag)
    optimizer, untroubled = make(optimizer_class, kind), make(optimizer_class, kind)
    for each in (optimizer, untroubled):
        take_steps(each, 0, steps_before)
        for state in each.state.values():
            state["utility"].view(-1)[0] = -0.0
    before = trace(optimizer)
    step_with(optimizer, bad, 3)
    for later in range(lag):
        assert bits(parameters_of(optimizer)) == bits(before[0])
        take_steps(optimizer, 50 + later, 1)
    with pytest.raises(NonFiniteGradientError) as caught:
        take_steps(optimizer, 90, 1)
    assert bits(trace(optimizer)) == bits(before)
    assert caught.value.parameter == "parameter 0 of group 1, shape (40, 30)"
    assert f"the gradient of {caught.value.parameter} held NaN or infinity in an earlier step" in str(caught.value)
    assert f"that one and all after it: {lag + 1}." in str(caught.value)
    for each in (optimizer, untroubled):
        take_steps(each, steps_before, lag + 3)
    assert_same(trace(optimizer), trace(untroubled))


def loaded(optimizer: Any) -> None:
    optimizer.load_state_dict({"state": {}, "param_groups": copy.deepcopy(optimizer.param_groups)})


def checked(optimizer: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gradient_check, "is_deferred", lambda _: False)
        take_steps(optimizer, 9, 1)


WAITING: dict[str, Callable[[Any], object]] = {
    "state_dict": lambda optimizer: optimizer.state_dict(),
    "load_state_dict": loaded,
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
    "a step that is checked at once": checked,
}


@BOTH
@pytest.mark.parametrize("call", WAITING.values(), ids=WAITING)
def test_what_needs_the_truth_waits_for_it(
    optimizer_class: Any, call: Callable[[Any], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    device = stand_in(monkeypatch, NEVER)
    optimizer = make(optimizer_class, "vectors")
    take_steps(optimizer, 0, 2)
    before = trace(optimizer)
    step_with(optimizer, float("nan"), 1)
    take_steps(optimizer, 3, 2)
    with pytest.raises(NonFiniteGradientError, match=r"parameter 1 of group 0.*all after it: 3"):
        call(optimizer)
    assert bits(trace(optimizer)) == bits(before)
    assert device.waited == [1, 2, 3]


@BOTH
@pytest.mark.parametrize("call", WAITING.values(), ids=WAITING)
def test_nothing_is_left_to_wait_for_after_waiting(
    optimizer_class: Any, call: Callable[[Any], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    device = stand_in(monkeypatch, NEVER)
    optimizer = make(optimizer_class, "vectors")
    take_steps(optimizer, 0, 3)
    call(optimizer)
    assert device.waited == [1, 2, 3]
    optimizer.state_dict()
    assert device.waited == [1, 2, 3]


@BOTH
def test_only_so_many_steps_are_under_way(optimizer_class: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    device = stand_in(monkeypatch, NEVER)
    optimizer = make(optimizer_class, "vectors")
    take_steps(optimizer, 0, MOST_UNANSWERED + 1)
    assert device.waited == []
    take_steps(optimizer, 100, 3)
    assert device.waited == [1, 2, 3]


@BOTH
def test_the_first_bad_parameter_of_the_first_bad_step_is_named(
    optimizer_class: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, NEVER)
    named = [(name, nn.Parameter(torch.ones(2))) for name in ("actor", "critic", "memory")]
    optimizer = optimizer_class(named)
    step_with(optimizer, float("inf"), 1, 2)
    step_with(optimizer, float("inf"), 0)
    with pytest.raises(NonFiniteGradientError, match="the gradient of critic held") as caught:
        optimizer.state_dict()
    assert caught.value.parameter == "critic"


@BOTH
def test_a_parameter_first_met_in_a_skipped_step_has_no_state_afterwards(
    optimizer_class: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, NEVER)
    early, late = (nn.Parameter(torch.ones(2)) for _ in range(2))
    optimizer = optimizer_class([early, late])
    early.grad = torch.ones(2)
    optimizer.step()
    early.grad = torch.full((2,), torch.nan)
    optimizer.step()
    early.grad, late.grad = torch.ones(2), torch.ones(2)
    optimizer.step()
    assert late in optimizer.state
    with pytest.raises(NonFiniteGradientError, match="parameter 0"):
        optimizer.state_dict()
    assert [optimizer.state[early]["step"], late in optimizer.state] == [1, False]
    assert optimizer.state_dict()["state"].keys() == {0}


@BOTH
def test_averages_that_a_skipped_step_started_are_gone_again(
    optimizer_class: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, NEVER)
    optimizer = make(optimizer_class, "vectors")
    take_steps(optimizer, 0, 2)
    before = trace(optimizer)
    for group in optimizer.param_groups:
        group["adaptive_noise"] = True
    step_with(optimizer, float("nan"), 4)
    assert "direction_rms" in optimizer.state[parameters(optimizer)[0]]
    with pytest.raises(NonFiniteGradientError, match="parameter 1 of group 1"):
        optimizer.state_dict()
    assert bits(trace(optimizer)) == bits(before)


@BOTH
def test_the_answer_comes_before_the_closure_is_evaluated(
    optimizer_class: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, lag=0)
    optimizer = make(optimizer_class, "vectors")
    step_with(optimizer, float("nan"), 0)
    evaluated: list[float] = []
    with pytest.raises(NonFiniteGradientError, match="earlier step"):
        optimizer.step(lambda: evaluated.append(0.0) or 0.0)
    assert evaluated == []


def test_steps_on_another_device_wait_for_those_on_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    device = stand_in(monkeypatch, NEVER)
    check = DeferredCheck({})
    elsewhere = torch.ones(2, device="meta")
    check.admit([Update(tensor := torch.ones(2), tensor, {}, (0, 0), {})])
    check.admit([Update(tensor := torch.full((2,), torch.inf), tensor, {"param_names": ["here"]}, (0, 0), {})])
    with pytest.raises(NonFiniteGradientError, match="the gradient of here"):
        check.admit([Update(elsewhere, elsewhere, {}, (0, 0), {})])
    assert (device.steps, device.waited) == (2, [1, 2])


def test_a_step_is_marked_on_the_device_of_its_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    marked: list[torch.device] = []
    monkeypatch.setattr(gradient_check, "mark", marked.append)
    gradient = torch.ones(2, device="meta")
    with Watch():
        DeferredCheck({}).admit([Update(gradient, gradient, {}, (0, 0), {})])
    assert marked == [torch.device("meta")]


def test_a_step_that_the_device_may_skip_has_no_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgd_updates, "STRETCH", 2)
    group = UPGD([nn.Parameter(torch.ones(5))]).param_groups[0]
    update = Update(group["params"][0], torch.ones(5), group, (0, 0), {})
    assert [type(block) for block in Workspace().blocks([update], {})] == [Stretch] * 3
    admitted = torch.tensor(True)
    blocks = Workspace().blocks([update], {}, admitted)
    assert [(type(block), block.admitted is admitted) for block in blocks] == [(Update, True)]


@BOTH
def test_a_gradient_beyond_the_limit_is_limited_and_stays_as_it_was(
    optimizer_class: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = []
    for deferred in (False, True):
        if deferred:
            stand_in(monkeypatch, lag=0)
        tensors = [nn.Parameter(torch.full((3,), 2.0)) for _ in range(2)]
        optimizer = optimizer_class(tensors, lr=1e-30, sigma=0.0)
        for tensor in tensors:
            tensor.grad = torch.tensor([3e38, -3e38, 1.0])
        optimizer.step()
        assert all(tensor.grad is not None and float(tensor.grad.amax()) > 2e38 for tensor in tensors)
        ends.append(trace(optimizer))
        assert all(bool(state["utility"].isfinite().all()) for state in ends[-1][1])
    assert_same(ends[1], ends[0])
