"""UPGD and AdaptiveUPGD on a CUDA device: no step waits for it. Played without one by tensors without values."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from rlcore.errors import NonFiniteGradientError
from rlcore.functional import utility as functional
from rlcore.optim import gradient_check
from rlcore.optim.upgd_updates import Update
from tests.unit.optim.device_stand_in import Device, WaitError, Watch, stand_in
from tests.unit.optim.upgd_steps import BOTH

NEVER = 10**9
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


def give_gradients(optimizer: Any) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.randn_like(parameter)


def make(optimizer_class: Any, device: str, dtypes: tuple[torch.dtype, ...], **settings: Any) -> Any:
    shapes = ((3, 2), (4,), (), (200_000,))
    tensors = [
        nn.Parameter(torch.randn(shape, dtype=dtype, device=device))
        for shape, dtype in zip(shapes, dtypes, strict=True)
    ]
    return optimizer_class([{"params": tensors[:3]}, {"params": tensors[3:], "lr": 0.5}], lr=0.1, **settings)


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> Device:
    """A device that never answers."""
    return stand_in(monkeypatch, NEVER)


def watched_steps(optimizer_class: Any, dtypes: tuple[torch.dtype, ...], settings: dict[str, Any]) -> None:
    optimizer = make(optimizer_class, "meta", dtypes, **settings)
    for _ in range(3):
        give_gradients(optimizer)
        with Watch():
            optimizer.step()


@BOTH
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("dtypes", DTYPES.values(), ids=DTYPES)
def test_no_step_waits(
    optimizer_class: Any, settings: dict[str, Any], dtypes: tuple[torch.dtype, ...], endless: Device
) -> None:
    watched_steps(optimizer_class, dtypes, settings)
    assert (endless.steps, endless.waited) == (3, [])


@BOTH
def test_an_answer_that_has_come_is_read_without_waiting(optimizer_class: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    device = stand_in(monkeypatch, lag=0)
    watched_steps(optimizer_class, DTYPES["32 bits"], SETTINGS["noise"])
    assert (device.steps, device.waited) == (3, [])


@BOTH
def test_a_wait_in_the_step_is_seen(
    optimizer_class: Any,
    endless: Device,  # noqa: ARG001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = functional.utility_scale
    monkeypatch.setattr(functional, "utility_scale", lambda extremes: original(extremes) * extremes.maximum.item())
    with pytest.raises(WaitError, match="local_scalar_dense"):
        watched_steps(optimizer_class, DTYPES["32 bits"], SETTINGS["noise"])


@BOTH
def test_utilities_are_not_rescaled_over_a_step_that_was_skipped(
    optimizer_class: Any,
    endless: Device,  # noqa: ARG001
) -> None:
    optimizer = make(optimizer_class, "cpu", DTYPES["32 bits"])
    give_gradients(optimizer)
    optimizer.step()
    before = copy.deepcopy(optimizer.state_dict()["state"])
    first = optimizer.param_groups[0]["params"][0]
    give_gradients(optimizer)
    first.grad[0, 0] = float("nan")
    optimizer.step()
    with pytest.raises(NonFiniteGradientError, match="parameter 0 of group 0"):
        optimizer.rescale_utilities([first], 2.0)
    torch.testing.assert_close(optimizer.state_dict()["state"], before, rtol=0, atol=0)
    optimizer.rescale_utilities([first], 2.0)
    torch.testing.assert_close(optimizer.state[first]["utility"], 2.0 * before[0]["utility"])


@pytest.mark.parametrize(
    "wait",
    [
        Tensor.item,
        bool,
        float,
        Tensor.cpu,
        lambda tensor: torch.zeros(()).copy_(tensor),
        lambda tensor: torch._foreach_copy_([torch.zeros(())], [tensor]),
        lambda tensor: torch.equal(tensor, tensor),
        lambda tensor: tensor.reshape(1).nonzero(),
        lambda tensor: tensor.reshape(1)[tensor.reshape(1) > 0],
        lambda tensor: tensor.add(torch.zeros(1).to("meta")),
    ],
)
def test_every_kind_of_wait_is_seen(wait: Callable[[Tensor], object]) -> None:
    with Watch(), pytest.raises(WaitError):
        wait(torch.ones((), device="meta"))


def test_a_copy_on_its_way_is_no_wait() -> None:
    with Watch():
        tensor = torch.ones((), device="meta")
        assert tensor.to("cpu", non_blocking=True).device.type == "cpu"
        assert torch.zeros(()).copy_(tensor, non_blocking=True).device.type == "cpu"


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        (("cpu", "cpu"), False),
        (("cuda:0", "cuda:0"), True),
        (("cuda:1",), True),
        (("cuda:0", "cuda:1"), False),
        (("cuda:0", "cpu"), False),
        (("cpu", "cuda:0"), False),
    ],
)
def test_only_gradients_on_one_cuda_device_are_checked_later(devices: tuple[str, ...], expected: bool) -> None:
    with FakeTensorMode():
        tensors = [torch.ones(2, device=device) for device in devices]
        updates = [Update(tensor, tensor, {}, (0, index), {}) for index, tensor in enumerate(tensors)]
        assert gradient_check.is_deferred(updates) is expected


def test_the_mark_is_set_in_the_stream_of_the_gradients_device(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stream:
        def __init__(self, device: torch.device) -> None:
            self.device = device

        def record_event(self) -> str:
            return f"event on {self.device}"

    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    assert gradient_check.mark(torch.device("cuda:1")) == "event on cuda:1"


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@BOTH
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_cuda_itself_sees_no_wait(optimizer_class: Any, settings: dict[str, Any]) -> None:
    optimizer = make(optimizer_class, "cuda", DTYPES["32 bits"], **settings)
    for _ in range(5):
        give_gradients(optimizer)
        torch.cuda.set_sync_debug_mode("error")
        try:
            optimizer.step()
        finally:
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@BOTH
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_cuda_skips_what_is_not_finite_and_says_so_later(optimizer_class: Any, bad: float) -> None:
    optimizer = make(optimizer_class, "cuda", DTYPES["mixed"], sigma=0.1)
    give_gradients(optimizer)
    optimizer.step()
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    before = copy.deepcopy(optimizer.state_dict()["state"]), [parameter.detach().clone() for parameter in parameters]
    for index in (3, None, None):
        give_gradients(optimizer)
        if index is not None:
            parameters[index].grad[777] = bad
        optimizer.step()
    with pytest.raises(NonFiniteGradientError, match=r"parameter 0 of group 1, shape \(200000,\)"):
        optimizer.state_dict()
    after = optimizer.state_dict()["state"], [parameter.detach() for parameter in parameters]
    torch.testing.assert_close(after, before, rtol=0, atol=0)
