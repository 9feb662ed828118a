"""How loops are compiled and kept on disk, which memory they take, and the loop that measures gradients.

Importing this module imports Numba, whose cache follows changes of a kernel's own file alone: delete the folder
``__pycache__`` after a change here. Sums are taken in float32 within a block, about the block's own mean, and in
float64 over blocks. A block whose squares leave the range of float32 is summed in float64.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, no-warn-unreachable
# mypy: disable-error-code="attr-defined, call-arg"

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import torch
from numba import carray, njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray
from torch import Tensor

from rlcore.errors import warn_caller

COMPILES: Final = os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")

inlined = njit(error_model="numpy", fastmath={"contract"})
summing = njit(error_model="numpy", fastmath={"contract", "reassoc"})
"""For a function whose sums may be taken in any order."""


def compiled(signature: str) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function for one signature, and keep it on disk for the next process if that can be written."""

    def decorate(function: Callable[..., Any]) -> Any:
        options: Any = {"error_model": "numpy", "fastmath": {"contract"}, "nogil": True}
        try:
            return njit(signature, cache=True, **options)(function)
        except (RuntimeError, OSError) as error:  # RuntimeError: Numba knows no folder that it can write
            warn_caller(
                f"the compiled optimizer step cannot be kept on disk ({error}), so every process compiles it again, "
                "which takes seconds; set NUMBA_CACHE_DIR to a folder that can be written",
                UserWarning,
            )
            return njit(signature, **options)(function)

    return decorate


@intrinsic
def _pointer(_: Any, address: Any) -> Any:
    """The float32 memory at an address."""
    signature = types.CPointer(types.float32)(address)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return signature, generate


@inlined
def vector(table, row, column, size_column):
    """The float32 elements of one tensor of a table of addresses."""
    return carray(_pointer(table[row, column]), table[row, size_column])


def addresses(tensors: Sequence[Tensor]) -> list[int]:
    """Return where each tensor lies; 0 for one that the loops cannot take.

    They take float32 that lies row by row on the CPU and is not empty, in a process that compiles.
    """
    float32 = torch.float32
    places = [
        t.data_ptr() if t.dtype is float32 and t.is_cpu and t.is_contiguous() and not t.is_neg() else 0 for t in tensors
    ]
    return places if COMPILES else [0] * len(places)


def table_of(*columns: Sequence[int]) -> tuple[NDArray[np.int64], list[int], list[int]]:
    """Split rows of tensors into those that the loops can take and the others, which have an address of 0.

    :param columns: the addresses of tensors, and last how many elements each of a row has
    :return: a table for the loops, int64 ``[k, len(columns)]``; the k rows that it has; the other rows
    """
    table = np.array(columns, np.int64).T
    taken = table.all(axis=1)
    return np.ascontiguousarray(table[taken]), np.flatnonzero(taken).tolist(), np.flatnonzero(~taken).tolist()


BLOCK: Final = 512
# Between these a float32 sum of the squares of a block neither overflowed nor lost small elements.
LEAST, MOST = np.float32(1e-20), np.float32(1e30)


@summing
def _sum(values):
    total = np.float32(0.0)
    for i in range(len(values)):
        total += values[i]
    return total


@summing
def _sums_about(values, center):
    """Sum of the deviations from ``center``, and of their squares, in the precision of ``center``."""
    first = second = center - center
    for i in range(len(values)):
        deviation = values[i] - center
        first += deviation
        second += deviation * deviation
    return first, second


@inlined
def _moments(block):
    """Mean of a block, and the sum of the squared deviations from it."""
    center = np.float64(np.float32(_sum(block) / np.float32(len(block))))
    first, second = _sums_about(block, np.float32(center))
    first, second = np.float64(first), np.float64(second)
    if not LEAST < second < MOST:
        center = np.float64(block[0])
        first, second = _sums_about(block, center)
        center += first / len(block)
        first, second = _sums_about(block, center)
    shift = first / len(block)
    return center + shift, max(second - first * shift, 0.0)


@compiled("void(int64[:, ::1], float64[:, ::1])")
def measure(table, measured):
    """Measure every gradient.

    :param table: address and number of elements of each gradient; see :func:`table_of`
    :param measured: takes mean and variance of each gradient
    """
    for row in range(len(table)):
        gradient = vector(table, row, 0, 1)
        mean, squares = 0.0, 0.0
        for start in range(0, len(gradient), BLOCK):
            end = min(start + BLOCK, len(gradient))
            block = gradient[start:end]
            block_mean, block_squares = _moments(block)
            # Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979
            difference = block_mean - mean
            mean += difference * ((end - start) / end)
            squares += block_squares + difference * difference * (start * ((end - start) / end))
        measured[row, 0], measured[row, 1] = mean, squares / len(gradient)
