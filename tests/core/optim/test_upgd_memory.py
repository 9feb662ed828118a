"""Which memory a step reads and writes on each path, and what others do to it between steps."""

from __future__ import annotations

import copy
import math
import runpy
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import pytest
import torch
from torch import Tensor, nn

from rlcore.errors import StateError
from rlcore.optim.compiled import compiled
from rlcore.optim.upgd import UPGD, AdaptiveUPGD
from tests.core.optim.upgd_steps import (
    BOTH,
    EVERY_NOISE,
    EVERY_PATH,
    KINDS,
    PATHS,
    SHAPES,
    assert_same,
    every_parameter,
    make,
    parameters_of,
    states_of,
    steps_on,
    take_steps,
)  # fmt: skip
from tests.reference.noise_reference import noise as noise_of


@BOTH
@EVERY_NOISE
@pytest.mark.parametrize("path", PATHS[1:])
@pytest.mark.parametrize("absent", [lambda *_: False, lambda step, index: (step + index) % 3 == 0], ids=["all", "some"])
def test_every_path_gives_the_same_numbers(
    optimizer_class: Any, noise: dict[str, Any], path: str, absent: Callable[[int, int], bool]
) -> None:
    compiled, other = make(optimizer_class, **noise), make(optimizer_class, path, **noise)
    for optimizer in (compiled, other):
        take_steps(optimizer, 0, steps_on(path), absent)
    count = len(SHAPES)
    torch.testing.assert_close(parameters_of(other, count), parameters_of(compiled), rtol=1e-6, atol=1e-6)
    for left, right in zip(states_of(other, count), states_of(compiled), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-6, atol=1e-6, check_dtype=False)


@BOTH
@EVERY_PATH
def test_noise_adapts_in_the_groups_that_ask_for_it_alone(optimizer_class: Any, path: str) -> None:
    optimizer = make(optimizer_class, path, lr=1.0, weight_decay=0.0, sigma=0.1, seed=3)
    optimizer.param_groups[1]["adaptive_noise"] = True
    for parameter in every_parameter(optimizer, 6):
        parameter.data.zero_()
        parameter.grad = torch.full_like(parameter, 50.0)
    optimizer.step()
    direction = 50.0 if optimizer_class is UPGD else 1.0
    for index, std in ((1, 0.1), (5, 0.1 * direction)):
        size = SHAPES[index][0]
        expected = -0.5 * (direction + std * torch.from_numpy(noise_of(size, index, 1, 3)).float())
        torch.testing.assert_close(parameters_of(optimizer)[index], expected, rtol=1e-5, atol=1e-5)
    assert ["noise_step" in state for state in states_of(optimizer, 6)] == [False] * 3 + [True] * 3


@EVERY_PATH
@pytest.mark.parametrize("missing", ["utility", "step", "first_moment"])
@pytest.mark.parametrize("position", [0, 2])
def test_what_one_parameter_lacks_starts_fresh_for_it_alone(path: str, position: int, missing: str) -> None:
    reference, optimizer = make(AdaptiveUPGD, "torch", sigma=0.0), make(AdaptiveUPGD, path, sigma=0.0)
    for each in (reference, optimizer):
        take_steps(each, 0, steps_on(path))
        saved = copy.deepcopy(each.state_dict())
        del saved["state"][position][missing]
        each.load_state_dict(saved)
        take_steps(each, steps_on(path), 3)
    counter = "moment_step" if missing == "first_moment" else "step"
    counters = [int(state[counter]) for state in states_of(optimizer, 3)]
    assert counters == [3 + (0 if index == position else steps_on(path)) for index in range(3)]
    torch.testing.assert_close(parameters_of(optimizer, 6), parameters_of(reference, 6), rtol=1e-6, atol=1e-6)


def transposed(tensor: Tensor) -> Tensor:
    """The same numbers, column by column."""
    return tensor.T.contiguous().T


@BOTH
@pytest.mark.parametrize("case", ["parameter", "gradient", "average", "negated", "16 bits"])
def test_what_is_not_contiguous_float32_gets_the_numbers_of_what_is(optimizer_class: Any, case: str) -> None:
    ends = []
    for is_odd in (True, False):
        odd = nn.Parameter(torch.linspace(-1, 1, 16).reshape(4, 4))
        optimizer = optimizer_class([nn.Parameter(torch.ones(3)), odd], lr=0.01, seed=0)
        take_steps(optimizer, 0, 1)
        optimizer.param_groups[0]["params"][0].grad = torch.ones(3)
        odd.grad = None
        if is_odd and case == "16 bits":
            odd.data = odd.data.bfloat16()
        if is_odd and case == "parameter":
            odd.data = transposed(odd.data)
        if is_odd and case == "average":
            optimizer.state[odd]["utility"] = transposed(optimizer.state[odd]["utility"])
        gradient = torch.linspace(-1, 2, 16, dtype=odd.dtype).reshape(4, 4)
        if is_odd and case == "negated":
            gradient = torch._neg_view(-gradient)
        odd.grad = transposed(gradient) if is_odd and case == "gradient" else gradient
        optimizer.step()
        ends.append([each.float() for each in parameters_of(optimizer)])
    tolerance = 1e-2 if case == "16 bits" else 1e-6
    torch.testing.assert_close(*ends, rtol=tolerance, atol=tolerance)


@BOTH
def test_a_float64_parameter_takes_all_to_torch(optimizer_class: Any) -> None:
    """Its utility may scale the others' by what float32 does not hold."""
    tensors = [nn.Parameter(torch.ones(3)), nn.Parameter(torch.full((3,), 1e-200, dtype=torch.float64))]
    optimizer = optimizer_class(tensors, lr=0.01)
    for tensor, gradient in zip(tensors, (torch.zeros(3), -torch.full((3,), 1e-100, dtype=torch.float64)), strict=True):
        tensor.grad = gradient
    optimizer.step()
    assert bool(tensors[0].isfinite().all())


@BOTH
@pytest.mark.parametrize(
    ("steps", "data", "gradient", "what"),
    [
        (0, torch.ones(1), None, r"gradient .* shape \(1,\) has the shape \(8,\)"),
        (0, torch.ones(80), None, r"gradient .* shape \(80,\) has the shape \(8,\)"),
        (1, torch.ones(80)[:4], torch.ones(4), r"utility .* shape \(4,\) has the shape \(8,\)"),
        (1, torch.ones(2, 4), torch.ones(2, 4), r"utility .* shape \(2, 4\) has the shape \(8,\)"),
        (1, torch.ones(2, 4), None, r"gradient .* shape \(2, 4\) has the shape \(8,\)"),
    ],
)
def test_other_shapes_are_refused_before_memory_is_read(
    optimizer_class: Any, steps: int, data: Tensor, gradient: Tensor | None, what: str
) -> None:
    parameter = nn.Parameter(torch.ones(8))
    optimizer = optimizer_class([parameter], lr=0.1)
    parameter.grad = torch.ones(8)
    for _ in range(steps):
        optimizer.step()
    before = copy.deepcopy(optimizer.state_dict())
    if gradient is not None:
        parameter.grad = None
    parameter.data = data.clone()
    if gradient is not None:
        parameter.grad = gradient
    with pytest.raises(StateError, match=f"{what}, so no step was made"):
        optimizer.step()
    assert torch.equal(parameter.detach(), data)
    assert_same(optimizer.state_dict(), before)


@BOTH
@EVERY_PATH
def test_parameters_that_share_memory_are_stepped_one_after_the_other(optimizer_class: Any, path: str) -> None:
    optimizer = make(optimizer_class, path, sigma=0.0, lr=0.1)
    first, second = every_parameter(optimizer)[1], every_parameter(optimizer)[5]
    second.data = first.data.fill_(1.0)
    for parameter in (first, second):
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert parameters_of(optimizer)[1].max() < 0.93


@BOTH
@pytest.mark.parametrize("moved", ["parameter", "average", "memory of an average", "kind of an average"])
def test_memory_that_moves_between_steps_is_followed(optimizer_class: Any, moved: str) -> None:
    ends = []
    for moves in (False, True):
        optimizer = make(optimizer_class)
        take_steps(optimizer, 0, 2)
        parameter = every_parameter(optimizer)[4]
        state, utility = optimizer.state[parameter], optimizer.state[parameter]["utility"]
        if moves and moved == "parameter":
            parameter.data = parameter.data.clone()
        if moves and moved == "average":
            state["utility"] = utility.clone()
        if moves and moved == "memory of an average":
            utility.data = utility.data.clone()
        if moves and moved == "kind of an average":  # a view of the same memory
            state["utility"] = utility.copy_(utility.T.contiguous().view(65, 64)).view(64, 65).T
        take_steps(optimizer, 2, 2)
        ends.append((parameters_of(optimizer), states_of(optimizer)))
    torch.testing.assert_close(*ends, rtol=1e-6, atol=1e-6)


@BOTH
@pytest.mark.parametrize("change", ["averages turned", "all cut"])
def test_tensors_that_change_in_place_are_followed(optimizer_class: Any, change: str) -> None:
    ends = []
    for is_copied in (False, True):
        parameter = nn.Parameter(torch.linspace(-1, 1, 16).reshape(4, 4))
        optimizer = optimizer_class([parameter], lr=0.1, seed=0)
        parameter.grad = torch.linspace(-2, 1, 16).reshape(4, 4)
        optimizer.step()
        parameter.grad = None
        averages = [each for each in optimizer.state[parameter].values() if isinstance(each, Tensor)]
        for tensor in averages if change == "averages turned" else [parameter, *averages]:
            changed = tensor.data.T if change == "averages turned" else tensor.data[:2]
            tensor.data = changed.clone(memory_format=torch.contiguous_format) if is_copied else changed
        parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        ends.append(parameter.detach().clone())
    torch.testing.assert_close(*ends, rtol=1e-6, atol=1e-6)


@BOTH
def test_no_gradient_is_held_after_a_step(optimizer_class: Any) -> None:
    optimizer = make(optimizer_class)
    take_steps(optimizer, 0, 1)
    gradients = [weakref.ref(parameter.grad) for parameter in every_parameter(optimizer)]
    optimizer.zero_grad()
    assert [each() for each in gradients] == [None] * len(gradients)


def test_noise_is_that_of_the_index_that_a_parameter_has_now() -> None:
    parameter = nn.Parameter(torch.zeros(3))
    optimizer = UPGD([parameter], lr=1.0, sigma=1.0, seed=3)
    parameter.grad = torch.zeros(3)
    optimizer.step()
    optimizer.param_groups[0]["params"].insert(0, nn.Parameter(torch.zeros(1)))
    parameter.data.zero_()
    optimizer.step()
    torch.testing.assert_close(parameter.detach(), -0.5 * torch.from_numpy(noise_of(3, 1, 2, 3)).float())


@pytest.mark.parametrize(
    ("optimizer_class", "settings"), [(UPGD, {"lr": 1e22}), (AdaptiveUPGD, {"lr": 1e-10, "eps": 1e-32})]
)
def test_utilities_whose_reciprocal_float32_cannot_hold_are_gated_like_others(
    optimizer_class: Any, settings: dict[str, Any]
) -> None:
    """The largest is 1e-42, and both directions have one size."""
    parameter = nn.Parameter(torch.tensor([1e-10, 0.0]))
    parameter.grad = torch.tensor([-1e-32, -1e-32])
    optimizer_class([parameter], sigma=0.0, weight_decay=0.0, beta_utility=0.5, **settings).step()
    most_useful, useless = (parameter.detach() - torch.tensor([1e-10, 0.0])).tolist()
    assert most_useful / useless == pytest.approx((1 - 0.7310586) / 0.5, rel=1e-3)


@BOTH
def test_parameters_may_change_their_precision_and_take_their_state_along(optimizer_class: Any) -> None:
    optimizer, expected = make(optimizer_class), make(optimizer_class, dtype=torch.float64)
    take_steps(optimizer, 0, 2)
    saved = copy.deepcopy(optimizer.state_dict())
    for mine, other in zip(every_parameter(optimizer), every_parameter(expected), strict=True):
        mine.grad = None
        mine.data = mine.detach().double()
        other.data = mine.detach().clone()
    for each in (optimizer, expected):
        each.load_state_dict(saved)
        take_steps(each, 2, 2)
    assert_same(parameters_of(optimizer), parameters_of(expected))


@BOTH
@pytest.mark.parametrize("way", ["load", "replace", "in place"])
def test_averages_that_others_change_are_those_of_the_next_step(optimizer_class: Any, way: str) -> None:
    source, taker = make(optimizer_class), make(optimizer_class)
    take_steps(source, 100, 3)
    take_steps(taker, 0, 3)
    if way == "load":
        taker.load_state_dict(source.state_dict())
    for given, taken in zip(source.state.values(), taker.state.values(), strict=True):
        for name, value in given.items():
            if way == "replace":
                taken[name] = value.clone() if isinstance(value, Tensor) else value
            elif way == "in place" and isinstance(value, Tensor):
                taken[name].copy_(value)
    for given, taken in zip(parameters_of(source), every_parameter(taker), strict=True):
        taken.data = transposed(given) if given.ndim == 2 and way == "load" else given.clone()
    for optimizer in (source, taker):
        take_steps(optimizer, 7, 2)
    tolerance = 1e-6 if way == "load" else 0.0
    torch.testing.assert_close(parameters_of(taker), parameters_of(source), rtol=tolerance, atol=tolerance)


@BOTH
def test_a_step_goes_on_from_rescaled_utilities(optimizer_class: Any) -> None:
    """As of a loaded state whose utilities were multiplied."""
    rescaled, multiplied = make(optimizer_class), make(optimizer_class)
    for optimizer in (rescaled, multiplied):
        take_steps(optimizer, 0, 3)
    rescaled.rescale_utilities(rescaled.param_groups[0]["params"][:2], 50.0)
    state = multiplied.state_dict()
    for number in range(2):
        state["state"][number]["utility"] = 50.0 * state["state"][number]["utility"]
    multiplied.load_state_dict(state)
    for optimizer in (rescaled, multiplied):
        take_steps(optimizer, 3, 2)
    assert_same(parameters_of(multiplied), parameters_of(rescaled))
    assert_same(multiplied.state_dict(), rescaled.state_dict())


@BOTH
@pytest.mark.parametrize(("start", "factors", "end"), [
    (1e-30, (1e60,), 1e30), (1e30, (1e-60,), 1e-30), (1e-30, (1e60, 1e60), torch.finfo(torch.float32).max / 4),
])  # fmt: skip
def test_utilities_are_rescaled_by_any_factor_and_stay_finite(
    optimizer_class: Any, start: float, factors: tuple[float, ...], end: float
) -> None:
    weight, idle = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))
    optimizer = optimizer_class([weight, idle])
    weight.grad = torch.ones(2)
    optimizer.step()
    optimizer.state[weight]["utility"].copy_(torch.tensor([0.0, start]))
    for factor in factors:
        optimizer.rescale_utilities([weight, idle], factor)
    assert optimizer.state[weight]["utility"].tolist() == [0.0, pytest.approx(end)]
    assert list(optimizer.state) == [weight]


@BOTH
@EVERY_PATH
def test_an_average_without_memory_is_the_newest_value_to_the_bit(optimizer_class: Any, path: str) -> None:
    optimizer = make(optimizer_class, path, lr=0.0)
    optimizer.param_groups[0]["beta_utility"] = 0.0
    parameter = every_parameter(optimizer)[1]
    parameter.data.fill_(1.0)
    for size in (1e30, 1e-3):
        parameter.grad = torch.full_like(parameter, size)
        optimizer.step()
    assert torch.equal(states_of(optimizer)[1]["utility"], torch.full((7,), -1e-3))


@BOTH
@EVERY_PATH
def test_autograd_notices_that_a_step_has_changed_a_parameter(optimizer_class: Any, path: str) -> None:
    optimizer = make(optimizer_class, path)
    parameter = every_parameter(optimizer)[1]
    loss = (parameter * parameter).sum()
    loss.backward(retain_graph=True)
    parameter.grad = parameter.grad.as_subclass(KINDS.get(path, Tensor))
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_numba_is_imported_by_the_first_step_and_compiles_nothing_where_it_is_told_not_to() -> None:
    code = """
import os, sys, torch, rlcore, rlcore.train
parameter = torch.nn.Parameter(torch.ones(3))
optimizer = rlcore.AdaptiveUPGD([parameter], lr=0.1, sigma=0.0)
optimizer.load_state_dict(optimizer.state_dict())
scaler = rlcore.VarianceGradientScaler([parameter], estimator="element")
scaler.load_state_dict(scaler.state_dict())
parameter.grad = torch.ones(3)
assert "numba" not in sys.modules
os.environ["NUMBA_DISABLE_JIT"] = "1"
if os.fork() == 0:
    scaler.scale_gradients()
    assert "numba" in sys.modules
else:
    assert os.wait()[1] == 0
    optimizer.step()
    assert "numba" in sys.modules and parameter.max() < 1
    assert not hasattr(rlcore.optim.upgd_kernel._change, "signatures")
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


def test_a_compiled_function_is_kept_on_disk_for_the_next_process_and_divides_as_ieee_754(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    code, kept = "def quotient(x, y):\n    return x / y\n", []
    (tmp_path / "quotients.py").write_text(code)
    for _ in range(2):
        names = runpy.run_path(str(tmp_path / "quotients.py"))
        kept.append(compiled("float64(float64, float64)")(names["quotient"]))
        assert [kept[-1](sign, 0.0) for sign in (1.0, -1.0)] == [math.inf, -math.inf]
    assert [sum(each.stats.cache_hits.values()) for each in kept] == [0, 1]
    exec(code, names := {})  # noqa: S102
    with pytest.warns(UserWarning, match="cannot be kept on disk .*NUMBA_CACHE_DIR"):
        quotient = compiled("float64(float64, float64)")(names["quotient"])
    assert (quotient(1, 2), len(quotient.signatures)) == (0.5, 1)
