"""What Triton kernels compute on a CUDA device, for any number of tensors: a UPGD step in two launches, and the
moments of gradients in one.

In a step the CPU does not wait for the device, which has the counters too, so that a CUDA graph can hold the launches.
"""

from __future__ import annotations

import math
import os
import shutil
import sysconfig
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from rlcore.errors import CallOrderError
from rlcore.optim import noise, upgd_triton
from rlcore.optim.transfers import send
from rlcore.optim.upgd_step import Averages, Group

KINDS: Final = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
AVERAGES: Final = ("utility", "first_moment", "second_moment", "direction_rms")
COUNTERS: Final = ("step", "moment_step", "noise_step")


class DevicePart:
    """The tables of the parameters of a step: contiguous float32, bfloat16 and float16 on one device.

    :param rows: of the table, up to the group
    :param settings: rows of the settings, for each group
    """

    def __init__(self, rows: list[list[int]], settings: list[list[float]], device: torch.device) -> None:
        table = np.array(rows, np.int64)
        blocks = -(-table[:, len(AVERAGES) + len(COUNTERS) + 2] // noise.BLOCK)
        ends, chosen = blocks.cumsum(), np.repeat(np.arange(len(rows)), blocks)
        table = np.column_stack([table, ends - blocks, ends])
        numbers = np.array(settings, np.float64).view(np.int64)
        # One copy, which the CPU does not wait for. 16 divides the address of each part, else Triton compiles again.
        parts = [np.pad(x.ravel(), (0, x.size % 2)) for x in (table, numbers, np.zeros(4, np.int64), chosen)]
        host = torch.from_numpy(np.concatenate(parts))
        sizes = [len(x) for x in parts]
        self._table, words, found, padded = torch.split(send(host, device), sizes)
        self._settings, self._found = words.view(torch.float64), found.view(torch.int32)
        self._rows = padded[: len(chosen)]  # a program for each
        self._squares = torch.empty(len(chosen), dtype=torch.float64, device=device)
        self._counts = torch.empty(len(rows), len(COUNTERS), dtype=torch.int64, device=device)
        self._levels = torch.empty(len(rows), device=device)
        self._made_for: Any = None
        self._parameters: list[Tensor] = []
        self._has_moments = False

    @classmethod
    def of(
        cls, updates: Sequence[Any], averages_of: Callable[[Group], Averages], kept: DevicePart | None
    ) -> DevicePart | None:
        """Return the tables of a step; None if the kernels cannot make all of it.

        They cannot where a tensor is strided or of 64 bits, on several devices, and where parameters share memory, as
        all are changed at once.

        :param kept: the tables of the step before, which serve again if nothing has moved
        """
        device = updates[0].parameter.device
        if not _supports(device) or any(each.parameter.device != device for each in updates):
            return None
        groups = {id(each.group): each.group for each in updates}
        averages = {key: averages_of(group) for key, group in groups.items()}
        for update in updates:
            _count_on_device(update)
        settings = [_settings(group, "noise_step" in averages[key]) for key, group in groups.items()]
        made_for = settings, [(each.index, id(each.group), each.group["seed"]) for each in updates], _seen(updates)
        if kept is None or kept._made_for != made_for:
            numbers = {key: number for number, key in enumerate(groups)}
            rows = [_row(each, averages[id(each.group)], numbers[id(each.group)]) for each in updates]
            if not all(rows) or _overlap([each.parameter for each in updates]):
                return None
            if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
                raise CallOrderError(
                    "a CUDA graph cannot capture this step, as the gradients lie elsewhere than in the step before or "
                    "a setting has changed; nothing was changed. Make a step with gradients that stay, as with "
                    "zero_grad(set_to_none=False), before the graph is captured."
                )
            kept = cls(rows, settings, device)
            kept._made_for, kept._has_moments = made_for, "betas" in updates[0].group
        kept._parameters = [each.parameter for each in updates]
        return kept

    def step(self, skipped: Tensor | int) -> Tensor:
        """Make the step, or nothing where a gradient is not finite; return how many such steps there were.

        :param skipped: how many there were before
        """
        if not isinstance(skipped, Tensor) or skipped.device != self._table.device:
            skipped = torch.full((), int(skipped), dtype=torch.int64, device=self._table.device)
        tables = self._table, self._rows, self._settings, self._found, self._counts, self._levels, self._squares
        _launch(upgd_triton.survey, self._rows, *tables, self._has_moments)
        _launch(upgd_triton.change, self._rows, *tables, skipped, self._has_moments)
        # Autograd refuses to go back through a parameter that has changed since, if it is told.
        torch.autograd.graph.increment_version(self._parameters)
        return skipped


@lru_cache(maxsize=4)
def _gradients_of(rows: tuple[tuple[int, int, int], ...], device: torch.device) -> DevicePart:
    """The tables of gradients, given as address, number of elements and kind."""
    unused = [0] * len((*AVERAGES, *COUNTERS))
    return DevicePart([[0, address, *unused, size, 0, kind, 0, 0] for address, size, kind in rows], [[0.0]], device)


def measure(gradients: Sequence[Tensor]) -> Any:
    """Mean and variance of each gradient, float64 ``[k, 2]``, in one launch; NaN where one is not finite.

    :return: None if the kernel cannot take all of them; see :meth:`DevicePart.of`
    """
    device = gradients[0].device
    usable = all(
        each.dtype in KINDS and each.is_contiguous() and not each.is_neg() and each.numel() for each in gradients
    )
    if not usable or not _supports(device) or any(each.device != device for each in gradients):
        return None
    part = _gradients_of(tuple((each.data_ptr(), each.numel(), KINDS[each.dtype]) for each in gradients), device)
    sizes = np.array([each.numel() for each in gradients])
    blocks = -(-sizes // noise.BLOCK)
    firsts = blocks.cumsum() - blocks
    counts = np.full(len(part._rows), noise.BLOCK)
    counts[firsts + blocks - 1] = sizes - (blocks - 1) * noise.BLOCK
    measured = torch.empty(len(counts), 2, dtype=torch.float64, device=device)
    _launch(upgd_triton.measure, part._rows, part._table, part._rows, part._settings, measured)
    means, squares = measured.cpu().numpy().T
    with np.errstate(invalid="ignore"):  # where a gradient is not finite
        mean = np.add.reduceat(counts * means, firsts) / sizes
        squares = squares + counts * np.square(means - np.repeat(mean, blocks))
        variance = np.add.reduceat(squares, firsts) / sizes
    return np.where(np.isfinite(variance), (mean, variance), np.nan).T


@cache
def _supports(device: torch.device) -> bool:
    """Say if Triton can compile for a device, for which it needs a C compiler and Python's headers.

    Memory of the CPU, which only tests bring, is for its interpreter.
    """
    if device.type == "cpu":
        return True
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    headers = Path(sysconfig.get_path("include"), "Python.h").is_file()
    return compiler is not None and headers and torch.cuda.get_device_capability(device) >= (7, 0)


def _launch(kernel: Any, programs: Tensor, *arguments: Any) -> None:
    """Launch a kernel with as many programs as a tensor has elements."""
    with torch.cuda.device_of(programs):  # type: ignore[no-untyped-call]
        kernel[(len(programs),)](*arguments, num_warps=8, enable_fp_fusion=False)


def _settings(group: Group, adapts: bool) -> list[float]:
    """The row of a group; decays are logarithms, and e to the power of -1e9 is 0 like any power of 0."""

    def average(beta: float) -> tuple[float, float]:
        return math.log(beta) if beta > 0 else -1e9, 1 - beta

    lr, betas = group["lr"], group.get("betas", (0.0, 0.0))
    return [
        *(1 - lr * group["weight_decay"], lr, *average(group["beta_utility"]), *average(betas[0]), *average(betas[1])),
        *(group.get("eps", 1.0), group["sigma"], adapts, *average(group["noise_beta"]), group["min_noise_std"]),
    ]


def _count_on_device(update: Any) -> None:
    for name in COUNTERS:
        if not isinstance(count := update.state.get(name, update.parameter), Tensor):
            update.state[name] = torch.full((), count, dtype=torch.int64, device=update.parameter.device)


def _seen(updates: Sequence[Any]) -> list[Any]:
    """Where each tensor of a step lies, and how; equal lists need equal tables."""
    tensors = [tensor for each in updates for tensor in (each.parameter, each.gradient, *each.state.values())]
    return [(each.data_ptr(), each.dtype, each.shape, each.is_contiguous(), each.is_neg()) for each in tensors]


def _row(update: Any, averages: Averages, group: int) -> list[int]:
    """The row of a parameter, empty where the kernels cannot take it."""
    parameter, gradient, state = update.parameter, update.gradient, update.state
    own = {name: state[name] for names in averages.values() for name in names}
    if parameter.dtype not in KINDS or gradient.dtype is not parameter.dtype:
        return []
    if not all(each.is_contiguous() and not each.is_neg() for each in (parameter, gradient, *own.values())):
        return []
    if not all(each.dtype is torch.float32 for each in own.values()):
        return []
    own.update({name: state[name] for name in averages})
    places = [own[name].data_ptr() if name in own else 0 for name in (*AVERAGES, *COUNTERS)]
    seed = update.group["seed"]
    signed = seed - 2**64 if seed >= 2**63 else seed
    size, kind = parameter.numel(), KINDS[parameter.dtype]
    return [parameter.data_ptr(), gradient.data_ptr(), *places, size, update.index, kind, signed, group]


def _overlap(parameters: Sequence[Tensor]) -> bool:
    spans = sorted((each.data_ptr(), each.data_ptr() + each.nbytes) for each in parameters)
    return any(one[1] > other[0] for one, other in pairwise(spans))
