"""Copies between the CPU and a device for which the CPU waits as seldom as it can."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device; what comes from the CPU is sent without waiting for the device."""
    pinned = tensor.is_cpu and device.type == "cuda"
    return (tensor.pin_memory() if pinned else tensor).to(device, non_blocking=pinned)


def on_host(values: Sequence[Tensor]) -> NDArray[Any]:
    """Return scalars of one dtype and of any devices as an array, for which the CPU waits once."""
    if not values:
        return np.zeros(0)
    joined: NDArray[Any] = torch.stack([value.to(values[0].device) for value in values]).cpu().numpy()
    return joined
