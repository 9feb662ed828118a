"""What plays a CUDA device where there is none: answers that come later, and a watch for whatever would wait for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from rlcore.optim import gradient_check

aten = torch.ops.aten


@dataclass
class Device:
    """One that answers a step once ``lag`` more were given to it, or when it is waited for.

    :param waited: which steps were waited for, counted from 1
    """

    lag: int
    steps: int = 0
    waited: list[int] = field(default_factory=list)

    def mark(self, _: torch.device) -> _Mark:
        """Of the next step."""
        self.steps += 1
        return _Mark(self, self.steps)


@dataclass
class _Mark:
    device: Device
    step: int

    def query(self) -> bool:
        return self.step in self.device.waited or self.device.steps - self.step >= self.device.lag

    def synchronize(self) -> None:
        self.device.waited.append(self.step)


def stand_in(monkeypatch: pytest.MonkeyPatch, lag: int) -> Device:
    """Let every optimizer take its steps as if its gradients lay on one CUDA device."""
    device = Device(lag)
    monkeypatch.setattr(gradient_check, "is_deferred", lambda _: True)
    monkeypatch.setattr(gradient_check, "mark", device.mark)
    return device


class WaitError(AssertionError):
    """An operation had to wait for the device."""


class Watch(TorchDispatchMode):
    """Refuses what would make the host wait for the device: reading a value there, a size that depends on values.

    The device is torch's ``meta``, whose tensors have no values; those on the host are on the CPU, and hold ones where
    they were copied from the device.
    """

    READING = (
        aten._local_scalar_dense.default,
        aten.equal.default,
        aten.masked_select.default,
        aten.nonzero.default,
        aten._unique2.default,
    )

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        given = dict(kwargs or {})
        if func in self.READING or (func is aten.index.Tensor and _has_mask(args[1])):
            raise WaitError(str(func))
        if func is aten._to_copy.default:
            target = given.get("device") or args[0].device
            if target != args[0].device:
                _refuse_blocking(func, given.get("non_blocking"))
                return torch.ones_like(args[0], device=target)
        elif func in (aten.copy_.default, aten._foreach_copy_.default):
            targets, sources = ([each] if isinstance(each, Tensor) else each for each in args[:2])
            if any(target.device != source.device for target, source in zip(targets, sources, strict=True)):
                _refuse_blocking(func, args[2] if len(args) > 2 else given.get("non_blocking"))
                return args[0]
        return func(*args, **given)


def _refuse_blocking(func: Any, non_blocking: bool | None) -> None:
    if not non_blocking:
        raise WaitError(str(func))


def _has_mask(indices: Any) -> bool:
    return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices)
