"""The kernels for a CUDA device next to plain torch, by Triton's interpreter on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from rlcore.errors import CallOrderError
from rlcore.optim import upgd
from rlcore.optim.gradient_variance import _plain_moments, measure
from rlcore.optim.scaler import VarianceGradientScaler
from rlcore.optim.upgd import UPGD, AdaptiveUPGD
from tests.core.optim.upgd_steps import BOTH, Elsewhere, OnDevice, assert_same, needs_triton, parameters_of, states_of
from tests.reference.noise_reference import noise as noise_of

pytestmark = [needs_triton, pytest.mark.filterwarnings("ignore::RuntimeWarning")]
DTYPES = (torch.float32, torch.float32, torch.bfloat16, torch.float16)
BETAS = st.sampled_from([0.0, 0.4, 0.99])
SIZES = st.sampled_from([0.0, 1e-3, 0.1, 1.0])
COMMON = {
    **dict.fromkeys(("lr", "weight_decay", "sigma", "min_noise_std"), SIZES),
    **dict.fromkeys(("beta_utility", "noise_beta"), BETAS),
    "adaptive_noise": st.booleans(),
    "seed": st.integers(0, 2**64 - 1),
}
OWN = {UPGD: {}, AdaptiveUPGD: {"betas": st.tuples(BETAS, BETAS), "eps": st.sampled_from([1e-30, 1e-8, 0.1])}}


@dataclass(frozen=True)
class Layout:
    """A parameter: shape and dtype, and whether it and its gradient lie column by column."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    strided: bool
    strided_gradient: bool

    def tensor(self, seed: int, kind: type[Tensor], strided: bool) -> Tensor:
        values = torch.randn(self.shape, generator=torch.Generator().manual_seed(seed)).to(self.dtype)
        return (values.mT.contiguous().mT if strided and values.dim() == 2 else values).as_subclass(kind)


SHAPES = st.sampled_from([(), (1,), (7,), (2, 3), (5, 4), (0,), (3, 0), (4101,)])
RARELY = st.sampled_from([False, False, False, True])
LAYOUTS = st.builds(Layout, SHAPES, st.sampled_from(DTYPES), RARELY, RARELY)


def take_step(optimizer: Any, layouts: list[Layout], gradients: list[str], step: int) -> None:
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for i, (parameter, layout, gradient) in enumerate(zip(parameters, layouts, gradients, strict=True)):
        value = layout.tensor(100 * step + i, type(parameter.data), layout.strided_gradient)
        if gradient == "bad" and value.numel():
            value[(-1,) * value.dim()] = torch.nan if step % 2 else torch.inf
        parameter.grad = None if gradient == "missing" else value
    optimizer.step()


@BOTH
@given(data=st.data())
@settings(max_examples=25, phases=[Phase.explicit, Phase.generate])  # the interpreter would take minutes to shrink
def test_a_step_of_the_kernels_is_one_of_plain_torch(optimizer_class: Any, data: st.DataObject) -> None:
    """Each takes over what the other saved, so that every step starts from the same numbers."""
    groups = data.draw(st.lists(st.lists(LAYOUTS, min_size=1, max_size=3), min_size=1, max_size=2))
    layouts = [layout for group in groups for layout in group]
    chosen = [data.draw(st.fixed_dictionaries({**COMMON, **OWN[optimizer_class]})) for _ in groups]
    pair = []
    for kind in (Elsewhere, OnDevice):
        tensors = [[nn.Parameter(x.tensor(i, kind, x.strided)) for i, x in enumerate(group)] for group in groups]
        pair.append(optimizer_class([{"params": own, **how} for own, how in zip(tensors, chosen, strict=True)]))
    kinds = st.sampled_from(["given"] * 8 + ["missing"] * 2 + ["bad"])
    for step in range(data.draw(st.integers(1, 3))):
        gradients = data.draw(st.lists(kinds, min_size=len(layouts), max_size=len(layouts)))
        for optimizer in pair:
            take_step(optimizer, layouts, gradients, step)
        assert_near(*pair, [layout.dtype for layout in layouts])
        source, taker = pair if data.draw(st.booleans()) else pair[::-1]
        taker.load_state_dict(source.state_dict())
        for mine, other in zip(of_all(taker), of_all(source), strict=True):
            mine.data.copy_(other.detach())
    assert pair[0].skipped_steps == pair[1].skipped_steps


def of_all(optimizer: Any) -> list[nn.Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def assert_near(plain: Any, kernels: Any, dtypes: list[torch.dtype]) -> None:
    for one, other, dtype in zip(parameters_of(plain), parameters_of(kernels), dtypes, strict=True):
        near = (
            {"rtol": 1e-6, "atol": 1e-6} if dtype is torch.float32 else {"rtol": torch.finfo(dtype).eps, "atol": 1e-6}
        )
        torch.testing.assert_close(other, one, **near)
        if dtype is not torch.float32:  # few numbers lie so near the middle of two that both are right
            assert int((one != other).sum()) <= 1 + one.numel() // 50
    for left, right in zip(states_of(plain), states_of(kernels), strict=True):
        torch.testing.assert_close(right, left, rtol=1e-6, atol=1e-6)


@BOTH
def test_a_loaded_state_may_have_more_than_a_step_needs(optimizer_class: Any) -> None:
    """The size of the noise was averaged once, and is no longer."""
    layouts = [Layout((7,), torch.float32, False, False)]
    pair = [
        optimizer_class([nn.Parameter(layouts[0].tensor(0, kind, False))], seed=3) for kind in (Elsewhere, OnDevice)
    ]
    for step, adaptive in enumerate((True, False, True)):
        for optimizer in pair:
            optimizer.load_state_dict(optimizer.state_dict())
            optimizer.param_groups[0]["adaptive_noise"] = adaptive
            take_step(optimizer, layouts, ["given"], step)
        assert_near(*pair, [torch.float32])


@BOTH
def test_a_step_leaves_no_trace_in_tables_that_serve_again(optimizer_class: Any) -> None:
    """The gradients keep their memory; their sign and size make all that a step finds smaller than before."""
    shared = {"lr": 0.1, "beta_utility": 0.0, "weight_decay": 0.0, "seed": 3}
    pair = [
        optimizer_class([nn.Parameter(torch.ones(5).as_subclass(kind))], **shared) for kind in (Elsewhere, OnDevice)
    ]
    for optimizer in pair:
        for parameter in of_all(optimizer):
            parameter.grad = torch.zeros_like(parameter)
    for gradient in (-1.0, torch.nan, -0.01, 0.5, 0.1):
        for optimizer in pair:
            of_all(optimizer)[0].grad.fill_(gradient)
            optimizer.step()
        assert_near(*pair, [torch.float32])
    assert pair[0].skipped_steps == pair[1].skipped_steps == 1


@BOTH
def test_the_programs_of_a_launch_may_run_in_any_order(optimizer_class: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from triton.runtime.interpreter import interpreter_builder

    place, ends = interpreter_builder.set_grid_idx, []
    for turned in (False, True):
        parameters = [nn.Parameter(torch.linspace(-1, 1, n).as_subclass(OnDevice)) for n in (5, 4101)]
        optimizer = optimizer_class(parameters, lr=0.1, sigma=0.1, adaptive_noise=True, noise_beta=0.4, seed=3)
        if turned:  # the second tensor's two programs, then the first's
            monkeypatch.setattr(interpreter_builder, "set_grid_idx", lambda x, y, z: place(2 - x, y, z))
        for gradient in (-1.0, torch.nan, -0.01, 0.5):
            for parameter in of_all(optimizer):
                parameter.grad = torch.full_like(parameter, gradient)
            optimizer.step()
        ends.append((parameters_of(optimizer), states_of(optimizer), optimizer.skipped_steps))
    assert_same(*ends)


def test_noise_is_that_of_every_other_path_at_any_step_seed_and_index() -> None:
    step, seed, size = 2**32 + 6, 2**63 + 12345, 9000
    parameters = [nn.Parameter(torch.zeros(n).as_subclass(OnDevice)) for n in (1, size)]
    optimizer = UPGD(parameters, lr=1.0, weight_decay=0.0, sigma=1.0, seed=seed)
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
        optimizer.state[parameter] = {"step": step - 1, "utility": torch.zeros_like(parameter)}
    optimizer.step()
    expected = -0.5 * torch.from_numpy(noise_of(size, 1, step, seed)).float()
    torch.testing.assert_close(parameters[1].detach().as_subclass(Tensor), expected, rtol=1e-6, atol=1e-6)
    assert int(optimizer.state[parameters[1]]["step"]) == step


class Operators(TorchDispatchMode):
    """Calls of torch's operators, of which views and detached tensors launch nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not operator.is_view and operator.namespace != "profiler":
            self.names.append(str(operator))
        return operator(*args, **(kwargs or {}))


@BOTH
@pytest.mark.parametrize("count", [1, 50])
def test_a_step_is_two_launches_for_any_number_of_tensors(
    optimizer_class: Any, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apart from these no operator runs, so that no table is built again and nothing waits."""
    launched: list[str] = []
    monkeypatch.setattr("rlcore.optim.upgd_device._launch", lambda kernel, *_: launched.append(kernel.__name__))
    parameters = [nn.Parameter(torch.ones(3).as_subclass(OnDevice)) for _ in range(count)]
    optimizer = optimizer_class(parameters, adaptive_noise=True)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    launched.clear()
    with Operators() as operators:
        optimizer.step()
    assert launched == ["survey", "change"]
    assert operators.names == []


@BOTH
def test_a_cuda_graph_can_hold_a_step(optimizer_class: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches that are recorded and made again, as a graph does, are further steps; others are refused."""
    pair = [optimizer_class([nn.Parameter(torch.ones(5).as_subclass(OnDevice))], lr=0.1, seed=3) for _ in range(2)]
    for optimizer in pair:
        of_all(optimizer)[0].grad = torch.ones(5).as_subclass(OnDevice)
        optimizer.step()
    kernels, recorded = upgd.device_kernels(), list[Any]()
    launch = kernels._launch
    with monkeypatch.context() as capture:
        capture.setattr(torch.cuda, "is_available", lambda: True)
        capture.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        capture.setattr(kernels, "_launch", lambda *call: recorded.append(call))
        pair[0].step()
        assert len(recorded) == 2
        before, of_all(pair[0])[0].grad = of_all(pair[0])[0].grad, torch.ones(5).as_subclass(OnDevice)
        with pytest.raises(CallOrderError, match=r"lie elsewhere .* zero_grad\(set_to_none=False\)"):
            pair[0].step()
    of_all(pair[0])[0].grad = before
    for gradient in (-1.0, torch.nan, 0.5):
        for optimizer in pair:
            of_all(optimizer)[0].grad.fill_(gradient)
        for call in recorded:
            launch(*call)
        pair[1].step()
        assert_near(*pair, [torch.float32])
    assert pair[0].skipped_steps == pair[1].skipped_steps == 1


@given(data=st.data())
@settings(max_examples=40, phases=[Phase.explicit, Phase.generate])
def test_the_kernel_measures_gradients_as_plain_torch(data: st.DataObject) -> None:
    layouts = data.draw(st.lists(LAYOUTS.filter(lambda layout: 0 not in layout.shape), min_size=1, max_size=4))
    offsets = data.draw(st.lists(st.sampled_from([0.0, 1e4, torch.nan, torch.inf]), min_size=4, max_size=4))
    gradients = [
        x.tensor(i, OnDevice, x.strided_gradient) + offset
        for i, (x, offset) in enumerate(zip(layouts, offsets, strict=False))
    ]
    mean, variance = _plain_moments([gradient.as_subclass(Tensor) for gradient in gradients]).T
    moments = measure(gradients)
    near = {"rtol": 1e-6, "atol": 1e-12 * float(np.nan_to_num(np.square(mean)).max())}
    np.testing.assert_allclose(moments.mean, mean, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(moments.variance, variance, **near)


@pytest.mark.parametrize("count", [1, 50])
def test_gradients_are_scaled_in_two_launches(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second is torch's. No table is sent again, and the CPU waits once, for what was measured."""
    launched: list[str] = []
    parameters = [nn.Parameter(torch.ones(3).as_subclass(OnDevice)) for _ in range(count)]

    def launch(kernel: Any, *arguments: Any) -> None:
        launched.append(kernel.__name__)
        arguments[-1].numpy()[:] = (-1.0) ** len(launched), 0.0  # mean and deviations

    monkeypatch.setattr("rlcore.optim.upgd_device._launch", launch)
    scaler = VarianceGradientScaler(parameters, warmup_steps=1)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    scaler.update_statistics()
    scaler.update_statistics()
    with Operators() as operators:
        assert scaler.scale_gradients() < 1
    assert launched == ["measure"] * 3
    assert operators.names == ["aten.empty.memory_format", "aten._foreach_mul_.Scalar"]


@pytest.mark.parametrize("case", ["without Triton", "of float64", "of shared memory", "strided"])
def test_a_step_that_is_not_for_the_kernels_is_one_of_plain_torch(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcore.optim.upgd_device._launch", pytest.fail)
    if case == "without Triton":
        monkeypatch.setattr(upgd, "device_kernels", lambda: None)
    memory = torch.ones(6, dtype=torch.float64 if case == "of float64" else torch.float32)
    second = {"of shared memory": memory[2:5], "strided": torch.ones(3, 2).mT}.get(case, torch.ones(3))
    parameters = [nn.Parameter(each.as_subclass(OnDevice)) for each in (memory[:3], second)]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    UPGD(parameters, lr=0.1).step()
    assert all(float(parameter.detach().max()) < 1 for parameter in parameters)


@pytest.mark.slow
def test_every_kernel_compiles_for_a_device_that_is_not_here() -> None:
    code = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from rlcore.optim import upgd_triton
kinds = {**dict.fromkeys(("measured", "settings", "squares"), "*fp64"), "levels": "*fp32", "found": "*i32"}
for kernel in (upgd_triton.measure, upgd_triton.survey, upgd_triton.change):
    for moments in (False, True):
        constant = {"HAS_MOMENTS": moments} if "HAS_MOMENTS" in kernel.arg_names else {}
        signature = {name: "constexpr" if name in constant else kinds.get(name, "*i64") for name in kernel.arg_names}
        source = ASTSource(kernel, signature, constexprs=constant)
        options = {"num_warps": 8, "enable_fp_fusion": False}
        assert triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["cubin"]
"""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
