"""Optimizers on every path, steps that depend on their index alone, and comparison to the bit."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rlcore.optim.upgd import UPGD, AdaptiveUPGD

BOTH = pytest.mark.parametrize("optimizer_class", [UPGD, AdaptiveUPGD])
SETTINGS: dict[str, Any] = {"lr": 0.1, "sigma": 0.1, "adaptive_noise": True, "beta_utility": 0.99}
NOISE: dict[str, dict[str, Any]] = {
    "no noise": {"sigma": 0.0},
    "noise": {"sigma": 0.1},
    "adaptive noise": {"sigma": 0.1, "adaptive_noise": True},
}
EVERY_NOISE = pytest.mark.parametrize("noise", NOISE.values(), ids=NOISE)

needs_triton = pytest.mark.skipif(
    find_spec("triton") is None or "TRITON_INTERPRET" not in os.environ,
    reason="needs the extra `triton`, and no CUDA device, for which the kernels would be compiled",
)
KERNELS = pytest.param("kernels", marks=[needs_triton, pytest.mark.filterwarnings("ignore::RuntimeWarning")])
PATHS = ("compiled", "torch", "device", KERNELS)
EVERY_PATH = pytest.mark.parametrize("path", PATHS)
SHAPES = ((5, 3), (7,), (2, 3, 4), (), (65, 64), (5000,))


def steps_on(path: str) -> int:
    """Enough steps to see an average move; the interpreter takes half a second for one."""
    return 3 if path == "kernels" else 10


class Elsewhere(Tensor):
    """Numbers on the CPU that claim to be on a device."""

    is_cpu = False


class OnDevice(Elsewhere):
    """Numbers on the CPU that claim to be on a CUDA device, where Triton's interpreter finds them."""

    is_cuda = True


KINDS = {"device": Elsewhere, "kernels": OnDevice}


def make(optimizer_class: Any, path: str = "compiled", dtype: torch.dtype = torch.float32, **settings: Any) -> Any:
    """Two groups of three parameters; one more, which is float64, zero and idle, takes a step to plain torch."""
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(shape, generator=generator).to(dtype) for shape in SHAPES]
    parameters = [nn.Parameter(each.as_subclass(KINDS.get(path, Tensor))) for each in tensors]
    groups = [{"params": parameters[:3]}, {"params": parameters[3:], "weight_decay": 0.1, "beta_utility": 0.4}]
    if path == "torch":
        groups.append({"params": [nn.Parameter(torch.zeros(1, dtype=torch.float64))], "sigma": 0.0})
    return optimizer_class(groups, **{"lr": 0.01, "sigma": 0.1, "seed": 2**40 + 1, **settings})


def make_parameters(dtype: torch.dtype = torch.float32, count: int = 2) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn((3, 2), generator=generator).to(dtype)) for _ in range(count)]


def every_parameter(optimizer: torch.optim.Optimizer, count: int | None = None) -> list[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]][:count]


def take_steps(optimizer: Any, first: int, count: int, absent: Callable[[int, int], bool] = lambda *_: False) -> None:
    """Steps whose gradients depend on the step index alone.

    :param absent: whether in that step the parameter of that index has no gradient
    """
    for step in range(first, first + count):
        generator = torch.Generator().manual_seed(100 + step)
        for index, parameter in enumerate(every_parameter(optimizer)):
            gradient = torch.randn(parameter.shape, generator=generator).to(parameter.dtype)
            gradient = gradient.as_subclass(type(parameter.data))
            parameter.grad = None if absent(step, index) else gradient
            if parameter.dtype is torch.float64 and not parameter.detach().any():
                parameter.grad = torch.zeros_like(parameter)
        torch.manual_seed(step)
        optimizer.step()


def parameters_of(optimizer: torch.optim.Optimizer, count: int | None = None) -> list[Tensor]:
    return [parameter.detach().as_subclass(Tensor).clone() for parameter in every_parameter(optimizer, count)]


def states_of(optimizer: torch.optim.Optimizer, count: int | None = None) -> list[dict[str, Any]]:
    states = [optimizer.state.get(parameter, {}) for parameter in every_parameter(optimizer, count)]
    return [{name: torch.as_tensor(value).as_subclass(Tensor) for name, value in state.items()} for state in states]


def snapshot(optimizer: torch.optim.Optimizer) -> tuple[list[Tensor], Any, Tensor]:
    return parameters_of(optimizer), copy.deepcopy(optimizer.state_dict()), torch.get_rng_state()


def assert_same(left: Any, right: Any) -> None:
    """Equal to the bit, through all containers."""
    assert type(left) is type(right)
    if isinstance(left, Tensor):
        assert left.dtype == right.dtype
        assert torch.equal(left, right)
    elif isinstance(left, dict):
        assert left.keys() == right.keys()
        for key in left:
            assert_same(left[key], right[key])
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            assert_same(one, other)
    else:
        assert left == right
