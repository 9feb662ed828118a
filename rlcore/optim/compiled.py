"""What the compiled loops share: how they are compiled and kept on disk, and how they reach the memory of tensors.

Importing this module imports Numba. Numba's cache follows changes of a kernel's own file alone, so delete the folder
``__pycache__`` after a change here.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
# mypy: disable-error-code="attr-defined, call-arg"

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit, types
from numba.extending import intrinsic

from rlcore.warn import warn_caller

inlined = njit(error_model="numpy", fastmath={"contract"})
summing = njit(error_model="numpy", fastmath={"contract", "reassoc"})
"""For a function whose sums may be taken in any order."""


def compiled(signature: str) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function for one signature, and keep it on disk for the next process if that can be written."""

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return njit(signature, cache=True, error_model="numpy", fastmath={"contract"}, nogil=True)(function)
        except (RuntimeError, OSError) as error:  # RuntimeError: Numba knows no folder that it can write
            warn_caller(
                f"the compiled optimizer step cannot be kept on disk ({error}), so every process compiles it again, "
                "which takes seconds; set NUMBA_CACHE_DIR to a folder that can be written",
                UserWarning,
            )
            return njit(signature, error_model="numpy", fastmath={"contract"}, nogil=True)(function)

    return decorate


@intrinsic
def pointer(_: Any, address: Any) -> Any:
    """The float32 memory at an address."""
    signature = types.CPointer(types.float32)(address)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return signature, generate
