"""Steps on a device that is not asked: none waits for it, and one that is not finite changes nothing."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rlcore import DistributionalPPO
from rlcore.errors import NonFiniteGradientError
from rlcore.optim import memory, upgd_paths
from rlcore.optim.noise import noise_to_signal
from rlcore.optim.upgd import UtilityGatedOptimizer
from rlcore.optim.upgd_paths import Update
from tests.support.training import differing, make_envs, make_model
from tests.unit.optim.upgd_steps import BOTH, parameters_of, take_steps

SETTINGS: dict[str, dict[str, Any]] = {
    "noise": {"sigma": 0.1},
    "adaptive noise": {"sigma": 0.1, "adaptive_noise": True},
    "no noise": {"sigma": 0.0},
}
DTYPES = {
    "32 bits": (torch.float32,) * 4,
    "16 bits": (torch.bfloat16,) * 4,
    "mixed": (torch.float32, torch.float64, torch.bfloat16, torch.float32),
}
EVERY_SETTING = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)


def make(optimizer_class: Any, device: str, dtypes: tuple[torch.dtype, ...], **settings: Any) -> Any:
    generator = torch.Generator().manual_seed(0)
    shapes = ((3, 2), (4,), (), (5000,))
    tensors = [
        nn.Parameter(torch.randn(shape, generator=generator).to(device, dtype))
        for shape, dtype in zip(shapes, dtypes, strict=True)
    ]
    return optimizer_class([{"params": tensors[:3]}, {"params": tensors[3:], "lr": 0.5}], lr=0.1, seed=3, **settings)


def parameters(optimizer: Any) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


@BOTH
@EVERY_SETTING
@pytest.mark.parametrize("dtypes", DTYPES.values(), ids=DTYPES)
def test_no_step_reads_a_number_from_the_device(
    optimizer_class: Any, settings: dict[str, Any], dtypes: tuple[torch.dtype, ...]
) -> None:
    """Tensors of the meta device have no numbers: whatever reads one raises."""
    optimizer = make(optimizer_class, "meta", dtypes, **settings)
    for _ in range(3):
        for parameter in parameters(optimizer):
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        _ = optimizer.skipped_steps


@pytest.fixture
def unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU, treated as a device that is not asked."""

    def is_finite(updates: list[Update]) -> Tensor:
        return torch.stack([update.gradient.isfinite().all() for update in updates]).all()

    monkeypatch.setattr(upgd_paths, "is_finite", is_finite)
    monkeypatch.setattr(upgd_paths, "_row", lambda *_: None)


def bits(value: Any) -> Any:
    """Tensors as bytes, so that -0 is not 0 and NaN is NaN."""
    if isinstance(value, Tensor):
        return value.contiguous().view(-1).view(torch.uint8).tolist()
    if isinstance(value, dict):
        return {key: bits(each) for key, each in value.items()}
    return [bits(each) for each in value] if isinstance(value, list) else value


@BOTH
@EVERY_SETTING
@pytest.mark.parametrize(
    ("dtypes", "bad"),
    [(DTYPES["32 bits"], float("nan")), (DTYPES["16 bits"], float("inf")), (DTYPES["mixed"], float("-inf"))],
    ids=DTYPES,
)
@pytest.mark.parametrize("steps_before", [0, 2])
@pytest.mark.usefixtures("unasked")
def test_a_step_that_is_not_finite_is_skipped_and_counted(
    optimizer_class: Any, settings: dict[str, Any], dtypes: tuple[torch.dtype, ...], bad: float, steps_before: int
) -> None:
    optimizer, untroubled = (make(optimizer_class, "cpu", dtypes, **settings) for _ in range(2))
    for each in (optimizer, untroubled):
        take_steps(each, 0, steps_before)
    before = parameters_of(optimizer), copy.deepcopy([optimizer.state.get(each) for each in parameters(optimizer)])
    for parameter in parameters(optimizer):
        parameter.grad = torch.ones_like(parameter)
    parameters(optimizer)[3].grad[777] = bad  # type: ignore[index]
    optimizer.step()
    assert bits(parameters_of(optimizer)) == bits(before[0])
    if steps_before:
        after = [optimizer.state[each] for each in parameters(optimizer)]
        assert bits(copy.deepcopy(after)) == bits(before[1])
    assert optimizer.skipped_steps == 1
    for each in (optimizer, untroubled):
        take_steps(each, steps_before, 3)
    assert optimizer.skipped_steps == 1
    assert bits(parameters_of(optimizer)) == bits(parameters_of(untroubled))
    assert bits(optimizer.state_dict()["state"]) == bits(untroubled.state_dict()["state"])
    assert noise_to_signal(optimizer) == noise_to_signal(untroubled)


@BOTH
@EVERY_SETTING
def test_counting_on_the_device_gives_the_numbers_of_counting_here(
    optimizer_class: Any, settings: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    """And what it has counted is loaded as a number."""
    here = make(optimizer_class, "cpu", DTYPES["mixed"], **settings)
    take_steps(here, 0, 4)
    request.getfixturevalue("unasked")
    there = make(optimizer_class, "cpu", DTYPES["mixed"], **settings)
    take_steps(there, 0, 4)
    torch.testing.assert_close(parameters_of(there), parameters_of(here), rtol=1e-6, atol=1e-7)
    states = [there.state[parameter]["step"] for parameter in parameters(there)]
    assert [type(step) for step in states] == [Tensor] * 4
    loaded = make(optimizer_class, "cpu", DTYPES["mixed"], **settings)
    loaded.load_state_dict(there.state_dict())
    assert [loaded.state[parameter]["step"] for parameter in parameters(loaded)] == [4] * 4


@BOTH
def test_one_gradient_on_the_cpu_makes_a_step_wait_and_raise(
    optimizer_class: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = torch.zeros(2), torch.zeros(2, device="meta")
    updates = [Update(each, each, {}, {}, 0, memory.address(each)) for each in (there, here)]
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        upgd_paths.is_finite(updates)
    optimizer = make(optimizer_class, "cpu", DTYPES["mixed"])
    for parameter in parameters(optimizer):
        parameter.grad = torch.ones_like(parameter)
    parameters(optimizer)[1].grad[0] = torch.nan  # type: ignore[index]
    monkeypatch.setattr(memory, "address", lambda _: 0)
    with pytest.raises(NonFiniteGradientError, match="parameter 1 of group 0"):
        optimizer.step()
    assert optimizer.skipped_steps == 0


class Elsewhere(Tensor):
    """Numbers on the CPU that claim to be on a device."""

    is_cpu = False


@pytest.mark.parametrize(("worst", "finite"), [(3e38, True), (-1e30, True), (torch.inf, False), (torch.nan, False)])
def test_a_device_skips_no_gradient_that_is_large_and_finite(worst: float, finite: bool) -> None:
    """The sum of its squares is beyond the range of float32."""
    tensors = [torch.tensor(values).as_subclass(Elsewhere) for values in ([1e30, 1.0], [0.0, worst], [2e38])]
    found = upgd_paths.is_finite([Update(each, each, {}, {}, index, 0) for index, each in enumerate(tensors)])
    assert isinstance(found, Tensor)
    assert bool(found) == finite


@BOTH
def test_a_counter_is_on_the_device_of_its_parameter(optimizer_class: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where another device has found out whether the step is taken. Equal ones of a device are one."""
    monkeypatch.setattr(upgd_paths, "is_finite", lambda _: torch.tensor(True))
    monkeypatch.setattr(UtilityGatedOptimizer, "_change", lambda *_: None)  # a meta tensor has no utility to compare
    tensors = [nn.Parameter(torch.ones(3, device=device)) for device in ("cpu", "meta", "meta")]
    optimizer = optimizer_class(tensors)
    for tensor in tensors:
        tensor.grad = torch.ones_like(tensor)
    optimizer.step()
    counters = [optimizer.state[tensor]["step"] for tensor in tensors]
    assert [counter.device for counter in counters] == [tensor.device for tensor in tensors]
    assert counters[1] is counters[2]


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype:UserWarning")
@BOTH
@EVERY_SETTING
@pytest.mark.parametrize("bad", [torch.inf, torch.nan])
def test_cuda_itself_sees_no_wait_and_skips(optimizer_class: Any, settings: dict[str, Any], bad: float) -> None:
    optimizer = make(optimizer_class, "cuda", DTYPES["mixed"], **settings)
    start = [parameter.detach().clone() for parameter in parameters(optimizer)]
    for index in range(5):
        for parameter in parameters(optimizer):
            parameter.grad = torch.ones_like(parameter)
        before = [parameter.detach().clone() for parameter in parameters(optimizer)]
        if index == 2:
            parameters(optimizer)[3].grad.mul_(bad)  # type: ignore[union-attr]
        torch.cuda.set_sync_debug_mode("error")
        try:
            optimizer.step()
            with pytest.raises(RuntimeError, match="synchronizing"):  # so that the mode would have seen a wait
                before[0].sum().item()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        if index == 2:
            assert bits(parameters(optimizer)) == bits(before)
    assert optimizer.skipped_steps == 1
    assert [int(state["step"]) for state in optimizer.state.values()] == [4] * 4
    assert all(bool((parameter != old).any()) for parameter, old in zip(parameters(optimizer), start, strict=True))


@BOTH
@pytest.mark.usefixtures("unasked")
def test_what_a_device_has_counted_is_saved_as_a_number(optimizer_class: Any) -> None:
    """The live counters stay tensors, so that a step waits for nothing."""
    optimizer = make(optimizer_class, "cpu", DTYPES["32 bits"], **SETTINGS["adaptive noise"])
    take_steps(optimizer, 0, 3)
    for entries in optimizer.state_dict()["state"].values():
        counters = {name: value for name, value in entries.items() if name.endswith("step")}
        assert {(type(value), value) for value in counters.values()} == {(int, 3)}
    assert {type(optimizer.state[each]["step"]) for each in parameters(optimizer)} == {Tensor}


@pytest.mark.usefixtures("unasked")
def test_a_model_whose_device_counts_is_saved_loaded_and_rolled_back() -> None:
    model, file = make_model(), io.BytesIO()
    model.learn(48)
    model.save(file)
    file.seek(0)
    loaded = DistributionalPPO.load(file, env=make_envs(), device="cpu")
    assert differing(loaded.get_parameters(), model.get_parameters()) == []
    model.set_parameters(model.get_parameters())
    before = model.get_parameters()
    vars(model)["vf_coef"] = float("nan")  # the losses are not finite, so every step is skipped or the update fails
    with pytest.raises(NonFiniteGradientError):
        model.train()
    assert differing(model.get_parameters(), before) == []
