"""How the compiled loops are built and kept on disk, and which memory they take. Importing this module imports Numba.

Numba's cache follows changes of a kernel's own file alone, so delete the folder ``__pycache__`` after a change here.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
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


def table_of(*columns: Sequence[Tensor]) -> tuple[NDArray[np.int64], list[int], list[int]]:
    """Split rows of tensors into those that the loops can take and the others.

    The loops take float32 that lies row by row on the CPU and is not empty, in a process that compiles.

    :param columns: at least one, of one length; the tensors of a row have one number of elements
    :return: addresses and number of elements, int64 ``[k, len(columns) + 1]``; the k rows that it has; the other rows
    """
    float32 = torch.float32
    places = [
        [
            t.data_ptr() if t.dtype is float32 and t.is_cpu and t.is_contiguous() and not t.is_neg() else 0
            for t in column
        ]
        for column in columns
    ]
    rows = list(zip(*places, map(Tensor.numel, columns[0]), strict=True))
    taken = [i for i, row in enumerate(rows) if 0 not in row and COMPILES]
    others = sorted({*range(len(rows))} - {*taken}) if len(taken) < len(rows) else []
    return np.array([rows[i] for i in taken], np.int64).reshape(-1, len(columns) + 1), taken, others
