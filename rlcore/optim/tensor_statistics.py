"""Statistics of each of several tensors: what they are of, and how they are carried over, saved and read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlcore.errors import StateError
from rlcore.optim.gradient_moments import Floats
from rlcore.optim.state_reading import read_tensor, show
from rlcore.types import StateValue

Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True)
class TensorLayout:
    """What an estimator needs to know of a parameter; it holds no reference to it."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, tensor: Tensor) -> Self:
        """Describe ``tensor``."""
        return cls(tuple(tensor.shape), tensor.dtype, tensor.device)

    @property
    def state_dtype(self) -> torch.dtype:
        """float64 for float64 parameters, float32 for all others: an EMA with 0.99 stands still in bfloat16."""
        return torch.float64 if self.dtype == torch.float64 else torch.float32


def carry_over(values: NDArray[Number], kept: Sequence[int], size: int) -> NDArray[Number]:
    """Return ``[size]`` zeros that hold ``values`` at the positions ``kept``."""
    carried = np.zeros(size, dtype=values.dtype)
    carried[list(kept)] = values[list(kept)]
    return carried


def snapshot(values: NDArray[Any]) -> Tensor:
    """Return a copy of ``values`` as a tensor on the CPU, as a saved state holds it."""
    return torch.from_numpy(values.copy())


def read_numbers(value: StateValue, size: int, what: str, minimum: float | None = None) -> Floats:
    """Read float64 ``[size]``; raises as :func:`read_tensor`."""
    numbers: Floats = read_tensor(value, (size,), torch.float64, what, minimum).cpu().numpy()
    return numbers


def read_list(values: StateValue, size: int, what: str) -> list[StateValue]:
    """Return ``values`` if it is a list of ``size``, else raise :class:`StateError`."""
    if not isinstance(values, list) or len(values) != size:
        raise StateError(f"{what}: expected a list of {size} tensors, one a parameter; got {show(values)}")
    return values
