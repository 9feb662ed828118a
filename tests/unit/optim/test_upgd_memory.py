"""Which memory a step reads and writes: the compiled path and plain torch, and what others do to it between steps."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from rlcore.errors import StateError
from rlcore.optim import upgd_paths
from rlcore.optim.noise import BLOCK
from rlcore.optim.upgd import UPGD, AdaptiveUPGD, UtilityGatedOptimizer
from rlcore.optim.upgd_paths import CompiledPart, Part, TorchPart
from tests.reference.noise_reference import noise
from tests.unit.optim.upgd_steps import BOTH, assert_same, parameters_of, snapshot

SHAPES = [(5, 3), (7,), (2, 3, 4), (), (65, 64), (5000,)]
NOISE: dict[str, dict[str, Any]] = {
    "no noise": {"sigma": 0.0},
    "noise": {"sigma": 0.1},
    "adaptive noise": {"sigma": 0.1, "adaptive_noise": True},
}


def make(optimizer_class: Any, dtype: torch.dtype = torch.float32, **settings: Any) -> Any:
    generator = torch.Generator().manual_seed(0)
    tensors = [nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for shape in SHAPES]
    groups = [{"params": tensors[:3]}, {"params": tensors[3:], "weight_decay": 0.1, "beta_utility": 0.4}]
    return optimizer_class(groups, **{"lr": 0.01, "sigma": 0.1, "seed": 2**40 + 1, **settings})


def steps(optimizer: Any, first: int, count: int, absent: Callable[[int, int], bool] = lambda *_: False) -> None:
    """Steps whose gradients depend on the step index alone.

    :param absent: whether in that step the parameter of that index has no gradient
    """
    for step in range(first, first + count):
        generator = torch.Generator().manual_seed(step)
        for index, parameter in enumerate(every_parameter(optimizer)):
            gradient = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
            parameter.grad = None if absent(step, index) else gradient
        optimizer.step()


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[list[Part]]:
    """The parts of each step."""
    seen: list[list[Part]] = []
    original = UtilityGatedOptimizer._change

    def recorded(self: Any, parts: list[Part]) -> None:
        seen.append(parts)
        original(self, parts)

    monkeypatch.setattr(UtilityGatedOptimizer, "_change", recorded)
    return seen


def kinds(parts: list[Part]) -> list[tuple[type, int]]:
    return [(type(part), len(part.updates)) for part in parts]


@BOTH
@pytest.mark.parametrize("settings", NOISE.values(), ids=NOISE)
@pytest.mark.parametrize("absent", [lambda *_: False, lambda step, index: (step + index) % 3 == 0], ids=["all", "some"])
def test_both_paths_give_the_same_numbers(
    optimizer_class: Any,
    settings: dict[str, Any],
    absent: Callable[[int, int], bool],
    parts: list[list[Part]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled, plain = make(optimizer_class, **settings), make(optimizer_class, **settings)
    steps(compiled, 0, 10, absent)
    monkeypatch.setattr(upgd_paths, "_row", lambda *_: None)
    steps(plain, 0, 10, absent)
    assert {type(part) for each in parts[:10] for part in each} == {CompiledPart}
    assert {type(part) for each in parts[10:] for part in each} == {TorchPart}
    torch.testing.assert_close(parameters_of(compiled), parameters_of(plain), rtol=1e-6, atol=1e-6)
    for left, right in zip(compiled.state.values(), plain.state.values(), strict=True):
        assert left.keys() == right.keys()
        torch.testing.assert_close(left, right, rtol=1e-6, atol=1e-6)


@BOTH
@pytest.mark.parametrize("compiles", [True, False])
def test_noise_adapts_in_the_groups_that_ask_for_it_alone(
    optimizer_class: Any, compiles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiles:
        monkeypatch.setattr(upgd_paths, "_row", lambda *_: None)
    tensors = [nn.Parameter(torch.zeros(500)) for _ in range(2)]
    groups: list[dict[str, Any]] = [{"params": tensors[:1], "adaptive_noise": True}, {"params": tensors[1:]}]
    optimizer = optimizer_class(groups, lr=1.0, weight_decay=0.0, sigma=0.1, seed=3)
    for tensor in tensors:
        tensor.grad = torch.full_like(tensor, 50.0)
    optimizer.step()
    direction = 50.0 if optimizer_class is UPGD else 1.0
    for index, std in enumerate((0.1 * direction, 0.1)):
        expected = -0.5 * (direction + std * torch.from_numpy(noise(500, index, 1, 3)).float())
        torch.testing.assert_close(tensors[index].detach(), expected, rtol=1e-5, atol=1e-5)
    assert ["noise_step" in optimizer.state[tensor] for tensor in tensors] == [True, False]


def test_moments_that_one_parameter_lacks_are_corrected_by_its_own_steps_on_both_paths(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, *others = (make(AdaptiveUPGD, sigma=0.0) for _ in range(3))
    steps(source, 0, 10)
    saved = copy.deepcopy(source.state_dict())
    del saved["state"][1]["first_moment"]
    for other, row in zip(others, (upgd_paths._row, lambda *_: None), strict=True):
        monkeypatch.setattr(upgd_paths, "_row", row)
        other.load_state_dict(saved)
        steps(other, 10, 2)
    compiled, plain = map(parameters_of, others)
    torch.testing.assert_close(compiled, plain, rtol=1e-6, atol=1e-6)


@BOTH
def test_a_parameter_without_a_gradient_leaves_the_others_in_one_call(
    optimizer_class: Any, parts: list[list[Part]]
) -> None:
    steps(make(optimizer_class), 0, 3, lambda step, index: step == 1 and index == 2)
    assert [kinds(each) for each in parts] == [[(CompiledPart, 6)], [(CompiledPart, 5)], [(CompiledPart, 6)]]


@BOTH
@pytest.mark.parametrize("case", ["16 bits", "transposed parameter", "transposed gradient", "transposed average"])
def test_what_is_not_contiguous_float32_is_left_to_torch(
    optimizer_class: Any, case: str, parts: list[list[Part]]
) -> None:
    """Alone: its neighbour goes on in the kernel."""
    neighbour, odd = nn.Parameter(torch.ones(3)), nn.Parameter(torch.randn(4, 4))
    optimizer = optimizer_class([neighbour, odd], lr=0.01)
    neighbour.grad, odd.grad = torch.ones(3), torch.ones(4, 4)
    optimizer.step()
    neighbour.grad, odd.grad = torch.ones(3), None
    if case == "16 bits":
        odd.data = odd.data.bfloat16()
    if case == "transposed parameter":
        odd.data = odd.data.T
    odd.grad = torch.ones(4, 4, dtype=odd.dtype)
    if case == "transposed gradient":
        odd.grad = torch.ones(4, 4).T
    if case == "transposed average":
        optimizer.state[odd]["utility"] = optimizer.state[odd]["utility"].T
    before = odd.detach().clone()
    optimizer.step()
    assert kinds(parts[-1]) == [(TorchPart, 1), (CompiledPart, 1)]
    assert not torch.equal(odd, before)


@BOTH
def test_a_float64_parameter_takes_all_to_torch(optimizer_class: Any, parts: list[list[Part]]) -> None:
    """Its utility may scale the others' by what float32 does not hold."""
    tensors = [nn.Parameter(torch.ones(3)), nn.Parameter(torch.full((3,), 1e-200, dtype=torch.float64))]
    optimizer = optimizer_class(tensors, lr=0.01)
    for tensor, gradient in zip(tensors, (torch.zeros(3), -torch.full((3,), 1e-100, dtype=torch.float64)), strict=True):
        tensor.grad = gradient
    optimizer.step()
    assert kinds(parts[0]) == [(TorchPart, 1)] * 2
    assert bool(tensors[0].isfinite().all())


@pytest.mark.parametrize("size", [1, 80])
def test_a_gradient_of_another_size_than_the_exchanged_memory_of_its_parameter_is_not_read(size: int) -> None:
    parameter = nn.Parameter(torch.ones(40))
    optimizer = AdaptiveUPGD([parameter], lr=0.1)
    parameter.grad = torch.ones(40)
    parameter.data = torch.ones(size)
    with pytest.raises(StateError, match=rf"gradient of parameter 0 .* shape \({size},\) has the shape \(40,\), so no"):
        optimizer.step()
    assert parameter.tolist() == [1.0] * size


@BOTH
def test_a_parameter_that_was_shortened_in_place_is_not_read_beyond_its_end(optimizer_class: Any) -> None:
    parameter = nn.Parameter(torch.ones(40))
    optimizer = optimizer_class([parameter], lr=0.1)
    parameter.grad = torch.ones(40)
    optimizer.step()
    parameter.grad = None
    parameter.data = parameter.data[:20]
    parameter.grad = torch.ones(20)
    with pytest.raises(StateError, match=r"utility of parameter 0 .* shape \(20,\) has the shape \(40,\), so no step"):
        optimizer.step()


@BOTH
def test_sizes_that_sum_up_alike_are_not_taken_for_each_other(optimizer_class: Any) -> None:
    """Parameters of one kind are computed as one vector."""
    tensors = [nn.Parameter(torch.ones(size).bfloat16()) for size in (3, 4)]
    optimizer = optimizer_class(tensors, lr=0.1)
    for tensor, size in zip(tensors, (4, 3), strict=True):
        tensor.data, tensor.grad = torch.ones(size).bfloat16(), torch.ones(size).bfloat16()
        tensor.data = torch.ones(7 - size).bfloat16()
    with pytest.raises(StateError, match=r"gradient of parameter 0 .* shape \(3,\) has the shape \(4,\), so no step"):
        optimizer.step()
    assert [tensor.tolist() for tensor in tensors] == [[1.0] * 3, [1.0] * 4]


@BOTH
@pytest.mark.parametrize("settings", NOISE.values(), ids=NOISE)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("counts_on", ["host", "device"])
def test_parameters_computed_as_one_vector_get_the_numbers_of_each_computed_alone(
    optimizer_class: Any,
    settings: dict[str, Any],
    dtype: torch.dtype,
    counts_on: str,
    parts: list[list[Part]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upgd_paths, "_row", lambda *_: None)
    if counts_on == "device":
        monkeypatch.setattr(upgd_paths, "is_finite", lambda _: torch.tensor(True))
    together, alone = make(optimizer_class, dtype, **settings), make(optimizer_class, dtype, **settings)
    for optimizer in (together, alone):
        first = every_parameter(optimizer)[0]
        first.data = first.data.T.contiguous().T
    steps(together, 0, 6, lambda step, index: step == 2 and index in (0, 4))
    monkeypatch.setattr(upgd_paths, "LARGEST_PART", 0)
    steps(alone, 0, 6, lambda step, index: step == 2 and index in (0, 4))
    assert [kinds(each) for each in parts[:6]] == [
        *[[(TorchPart, 3)] * 2] * 2,
        [(TorchPart, 2)] * 2,
        *[[(TorchPart, 1), (TorchPart, 2), (TorchPart, 2), (TorchPart, 1)]] * 3,
    ]
    assert [kinds(each) for each in parts[6:8]] == [[(TorchPart, 1)] * 6] * 2
    tolerance = 1e-14 if dtype is torch.float64 else 1e-6
    close = partial(torch.testing.assert_close, rtol=tolerance, atol=tolerance)
    close(parameters_of(together), parameters_of(alone))
    for left, right in zip(together.state.values(), alone.state.values(), strict=True):
        close(left, right)


class Launches(TorchDispatchMode):
    """Counts the operators that are no views; a device launches a kernel for each."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        aliases = [argument.alias_info for argument in func._schema.arguments if argument.alias_info is not None]
        self.count += not aliases or any(alias.is_write for alias in aliases)
        return func(*args, **(kwargs or {}))


@BOTH
def test_a_device_launches_few_kernels_more_for_more_parameters(
    optimizer_class: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of noise alone, two for each: it computes as many as if they were one."""

    def launched(count: int) -> int:
        tensors = [nn.Parameter(torch.ones(10)) for _ in range(count)]
        optimizer = optimizer_class(tensors, lr=0.01, sigma=0.1)
        for _ in range(2):  # the first step makes the averages
            for tensor in tensors:
                tensor.grad = torch.ones_like(tensor)
            with Launches() as launches:
                optimizer.step()
        return launches.count

    # As on a device: no compiled loops, and the device alone knows whether a gradient is finite.
    monkeypatch.setattr(upgd_paths, "_row", lambda *_: None)
    monkeypatch.setattr(upgd_paths, "is_finite", lambda _: torch.tensor(True))
    assert launched(20) - launched(10) == 10 * 2


@BOTH
def test_parts_are_of_no_more_elements_than_their_limit(
    optimizer_class: Any, parts: list[list[Part]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as noise is computed for, which comes in blocks."""
    monkeypatch.setattr(upgd_paths, "LARGEST_PART", 2 * BLOCK)
    sizes = (BLOCK, 30, 1, 3 * BLOCK, BLOCK + 1)
    tensors = [nn.Parameter(torch.ones(size).bfloat16()) for size in sizes]
    optimizer = optimizer_class(tensors, lr=0.01)
    for tensor in tensors:
        tensor.grad = torch.ones_like(tensor)
    optimizer.step()
    assert kinds(parts[0]) == [(TorchPart, 2), (TorchPart, 1), (TorchPart, 1), (TorchPart, 1)]


@BOTH
def test_parameters_that_share_memory_are_stepped_one_after_the_other(
    optimizer_class: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stepped() -> list[float]:
        tensors = [nn.Parameter(torch.ones(3)) for _ in range(2)]
        tensors[1].data = tensors[0].data
        optimizer = optimizer_class(tensors, lr=0.1, sigma=0.0)
        for tensor in tensors:
            tensor.grad = torch.ones(3)
        optimizer.step()
        return tensors[0].tolist()

    compiled = stepped()
    monkeypatch.setattr(upgd_paths, "_row", lambda *_: None)
    assert stepped() == pytest.approx(compiled)
    assert compiled[0] < 0.93


@BOTH
def test_an_exchange_of_rows_and_columns_is_no_step(optimizer_class: Any) -> None:
    parameter = nn.Parameter(torch.ones(2, 3).bfloat16())
    optimizer = optimizer_class([parameter], lr=0.1)
    parameter.grad = torch.ones(2, 3).bfloat16()
    optimizer.step()
    before = copy.deepcopy(optimizer.state_dict())
    parameter.grad = None
    parameter.data = parameter.data.T
    parameter.grad = torch.ones(3, 2).bfloat16()
    with pytest.raises(StateError, match=r"utility of parameter 0 .* shape \(3, 2\) has the shape \(2, 3\), .* Build"):
        optimizer.step()
    torch.testing.assert_close(optimizer.state_dict(), before, rtol=0, atol=0)


def test_noise_is_that_of_the_index_that_a_parameter_has_now() -> None:
    parameter = nn.Parameter(torch.zeros(3))
    optimizer = UPGD([parameter], lr=1.0, sigma=1.0, seed=3)
    parameter.grad = torch.zeros(3)
    optimizer.step()
    optimizer.param_groups[0]["params"].insert(0, nn.Parameter(torch.zeros(1)))
    parameter.data.zero_()
    optimizer.step()
    torch.testing.assert_close(parameter.detach(), -0.5 * torch.from_numpy(noise(3, 1, 2, 3)).float())


@BOTH
def test_a_gradient_beyond_the_limit_is_limited_where_it_is_read_and_stays_as_it_was(optimizer_class: Any) -> None:
    parameter = nn.Parameter(torch.zeros(40))
    parameter.grad = torch.full((40,), 3e38)
    optimizer = optimizer_class([parameter], lr=1e-30, sigma=0.0)
    optimizer.step()
    assert float(parameter.grad.amin()) > 2e38
    assert bool(parameter.detach().isfinite().all())
    if optimizer_class is AdaptiveUPGD:
        assert float(optimizer.state[parameter]["first_moment"].amax()) == pytest.approx(0.1 * 8.5e37, rel=0.01)


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
    torch.testing.assert_close(parameters_of(optimizer), parameters_of(expected), rtol=1e-6, atol=1e-6)


@BOTH
def test_a_step_goes_on_from_rescaled_utilities(optimizer_class: Any) -> None:
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
def test_what_one_parameter_lacks_starts_fresh_for_it_alone(optimizer_class: Any, position: int, missing: str) -> None:
    optimizer = make(optimizer_class)
    steps(optimizer, 0, 10)
    saved = copy.deepcopy(optimizer.state_dict())
    del saved["state"][position][missing]
    optimizer.load_state_dict(saved)
    steps(optimizer, 10, 3)
    counters = [optimizer.state[parameter]["step"] for parameter in optimizer.param_groups[0]["params"]]
    assert counters == [3 if index == position else 13 for index in range(3)]


@BOTH
def test_an_average_without_memory_is_the_newest_value_to_the_bit(optimizer_class: Any) -> None:
    parameter = nn.Parameter(torch.ones(20))
    optimizer = optimizer_class([parameter], lr=0.0, beta_utility=0.0)
    for size in (1e30, 1e-3):
        parameter.grad = torch.full((20,), size)
        optimizer.step()
    assert torch.equal(optimizer.state[parameter]["utility"], torch.full((20,), -1e-3))


@BOTH
def test_autograd_notices_that_a_step_has_changed_a_parameter(optimizer_class: Any) -> None:
    parameter = nn.Parameter(torch.ones(3))
    loss = (parameter * parameter).sum()
    loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
    optimizer_class([parameter], lr=0.1).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()  # type: ignore[no-untyped-call]


def test_the_kernel_needs_little_memory_of_its_own() -> None:
    from rlcore.optim import noise, upgd_kernel

    assert (upgd_kernel.BLOCK, upgd_kernel.LANES) == (noise.BLOCK, noise.LANES)
    assert upgd_kernel.BLOCK * (4 + 4) <= 64 * 1024


def test_the_exponential_of_the_kernel_is_exact_to_float32() -> None:
    """Within the range that float32 holds; beyond it the ends, and NaN of NaN."""
    from rlcore.optim import upgd_kernel

    inputs = np.linspace(-87, 88, 2001, dtype=np.float32)
    found = np.array([upgd_kernel._exponential(each) for each in inputs])
    np.testing.assert_allclose(found, np.exp(inputs.astype(np.float64)), rtol=3e-7)
    least, most, undefined = (upgd_kernel._exponential(np.float32(each)) for each in (-np.inf, np.inf, np.nan))
    assert (least, most) == (found[0], found[-1])
    assert np.isnan(undefined)


@BOTH
def test_a_parameter_that_shrank_in_place_is_not_written_beyond_its_end(optimizer_class: Any) -> None:
    """Its memory begins where it did, and its gradient still has the old size."""
    memory = torch.ones(8)
    parameter = nn.Parameter(memory)
    optimizer = optimizer_class([parameter], lr=0.1, sigma=0.0, seed=0)
    parameter.grad = torch.ones(8)
    optimizer.step()
    before = memory.clone()
    parameter.data = memory[:4]
    with pytest.raises(StateError, match=r"gradient of parameter 0 .* shape \(4,\) has the shape \(8,\), so no step"):
        optimizer.step()
    assert torch.equal(memory, before)


@BOTH
def test_a_gradient_that_is_only_marked_as_negated_is_read_as_negated(optimizer_class: Any) -> None:
    parameters = [nn.Parameter(torch.ones(3)) for _ in range(2)]
    for parameter, gradient in zip(parameters, (torch._neg_view(torch.ones(3)), -torch.ones(3)), strict=True):
        parameter.grad = gradient
        optimizer_class([parameter], lr=0.1, sigma=0.0, seed=0).step()
    assert torch.equal(*parameters)
