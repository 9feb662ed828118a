"""Which memory the compiled loops take."""

from __future__ import annotations

import os
from typing import Final

import torch
from torch import Tensor

COMPILES: Final = os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")
"""Whether Numba compiles anything in this process."""


def address(tensor: Tensor) -> int:
    """Where a tensor begins that is float32 and lies row by row on the CPU; 0 for others, or without compiling."""
    is_plain = tensor.dtype is torch.float32 and tensor.is_cpu and tensor.is_contiguous() and not tensor.is_neg()
    return tensor.data_ptr() if is_plain and COMPILES else 0
