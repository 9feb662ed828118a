"""Steps on a device, for which the CPU does not wait, by tensors that claim to be on one."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rlcore import DistributionalPPO
from rlcore.errors import NonFiniteGradientError
from rlcore.optim.upgd import UPGD
from rlcore.optim.upgd_step import noise_to_signal
from tests.core.optim.upgd_steps import (
    BOTH,
    EVERY_NOISE,
    Elsewhere,
    assert_same,
    every_parameter,
    make,
    parameters_of,
    take_steps,
)
from tests.support.training import differing, make_envs, make_model


def on(device: str, optimizer_class: Any, **settings: Any) -> Any:
    """Parameters of three dtypes."""
    optimizer = make(optimizer_class, lr=0.1, **settings)
    dtypes = (torch.float32, torch.float64, torch.bfloat16)
    tensors = [each.detach().to(device, dtypes[i % 3]) for i, each in enumerate(every_parameter(optimizer))]
    groups = [{"params": [*map(nn.Parameter, tensors[:3])]}, {"params": [*map(nn.Parameter, tensors[3:])], "lr": 0.5}]
    return optimizer_class(groups, lr=0.1, seed=3, **settings)


def fill_gradients(optimizer: Any) -> None:
    for parameter in every_parameter(optimizer):
        parameter.grad = torch.ones_like(parameter)


@BOTH
@EVERY_NOISE
def test_no_step_reads_a_number_from_the_device(optimizer_class: Any, noise: dict[str, Any]) -> None:
    """Tensors of the meta device have no numbers: whatever reads one raises."""
    optimizer = on("meta", optimizer_class, **noise)
    for _ in range(3):
        fill_gradients(optimizer)
        optimizer.step()
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        _ = optimizer.skipped_steps


def bits(value: Any) -> Any:
    """Tensors as bytes, so that -0 is not 0 and NaN is NaN."""
    if isinstance(value, Tensor):
        return value.as_subclass(Tensor).contiguous().view(-1).view(torch.uint8).tolist()
    if isinstance(value, dict):
        return {key: bits(each) for key, each in value.items()}
    return [bits(each) for each in value] if isinstance(value, list) else value


@BOTH
@EVERY_NOISE
@pytest.mark.parametrize(
    ("dtype", "bad"),
    [(torch.float32, torch.nan), (torch.bfloat16, torch.inf), (torch.float64, -torch.inf)],
    ids=["32 bits", "16 bits", "64 bits"],
)
@pytest.mark.parametrize("steps_before", [0, 2])
def test_a_step_that_is_not_finite_is_skipped_and_counted(
    optimizer_class: Any, noise: dict[str, Any], dtype: torch.dtype, bad: float, steps_before: int
) -> None:
    """What the device has counted is saved as numbers, and stays tensors, so that a step waits for nothing."""
    optimizer, untroubled = (make(optimizer_class, "device", dtype, **noise) for _ in range(2))
    for each in (optimizer, untroubled):
        take_steps(each, 0, steps_before)
    before = bits(parameters_of(optimizer)), bits(optimizer.state_dict()["state"])
    fill_gradients(optimizer)
    every_parameter(optimizer)[5].grad[777] = bad
    optimizer.step()
    assert bits(parameters_of(optimizer)) == before[0]
    assert not steps_before or bits(optimizer.state_dict()["state"]) == before[1]
    for each in (optimizer, untroubled):
        take_steps(each, steps_before, 2)
    assert (optimizer.skipped_steps, untroubled.skipped_steps) == (1, 0)
    assert bits(parameters_of(optimizer)) == bits(parameters_of(untroubled))
    saved = optimizer.state_dict()
    assert bits(saved["state"]) == bits(untroubled.state_dict()["state"])
    assert noise_to_signal(optimizer) == noise_to_signal(untroubled)
    assert {(type(entry["step"]), entry["step"]) for entry in saved["state"].values()} == {(int, steps_before + 2)}
    assert {type(optimizer.state[each]["step"]) for each in every_parameter(optimizer)} == {Elsewhere}
    loaded = make(optimizer_class, "device", dtype)
    loaded.load_state_dict(copy.deepcopy(saved))
    assert_same(loaded.state_dict()["state"], saved["state"])


@BOTH
def test_one_gradient_on_the_cpu_makes_a_step_wait_and_raise(optimizer_class: Any) -> None:
    optimizer = make(optimizer_class, "device")
    fill_gradients(optimizer)
    optimizer.param_groups[0]["params"][0].grad = torch.ones(5, 3)
    every_parameter(optimizer)[1].grad[0] = torch.nan
    with pytest.raises(NonFiniteGradientError, match="parameter 1 of group 0, shape"):
        optimizer.step()
    assert optimizer.skipped_steps == 0


@pytest.mark.parametrize(("worst", "skipped"), [(3e38, 0), (-1e30, 0), (torch.inf, 1), (torch.nan, 1)])
def test_a_device_skips_no_gradient_that_is_large_and_finite(worst: float, skipped: int) -> None:
    """The sum of its squares is beyond the range of float32."""
    optimizer = make(UPGD, "device")
    fill_gradients(optimizer)
    every_parameter(optimizer)[1].grad[2] = worst
    optimizer.step()
    assert optimizer.skipped_steps == skipped


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype:UserWarning")
@BOTH
@EVERY_NOISE
@pytest.mark.parametrize("bad", [torch.inf, torch.nan])
def test_cuda_itself_sees_no_wait_and_skips(optimizer_class: Any, noise: dict[str, Any], bad: float) -> None:
    optimizer = on("cuda", optimizer_class, **noise)
    start = parameters_of(optimizer)
    for index in range(5):
        fill_gradients(optimizer)
        before = parameters_of(optimizer)
        if index == 2:
            every_parameter(optimizer)[5].grad.mul_(bad)
        torch.cuda.set_sync_debug_mode("error")
        try:
            optimizer.step()
            with pytest.raises(RuntimeError, match="synchronizing"):  # so that the mode would have seen a wait
                before[0].sum().item()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        if index == 2:
            assert bits([each.cpu() for each in parameters_of(optimizer)]) == bits([each.cpu() for each in before])
    assert optimizer.skipped_steps == 1
    assert [int(state["step"]) for state in optimizer.state.values()] == [4] * 6
    assert all(bool((new != old).any()) for new, old in zip(parameters_of(optimizer), start, strict=True))


def test_a_model_whose_device_counts_is_saved_loaded_and_rolled_back() -> None:
    model, file = make_model(), io.BytesIO()

    def move(parameter: Tensor) -> None:
        parameter.grad = None if parameter.grad is None else parameter.grad.as_subclass(Elsewhere)

    for parameter in model.policy.parameters():
        parameter.register_post_accumulate_grad_hook(move)
    model.learn(48)
    assert {type(state["step"]) for state in model.policy.optimizer.state.values()} == {Elsewhere}
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
