"""One thread a process for numerical libraries."""

from __future__ import annotations

import os
import sys

THREAD_LIMITS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def pin_threads() -> None:
    """Use one thread: sums in another order give other bits, and worker processes fill the cores already."""
    for name in THREAD_LIMITS:
        os.environ[name] = "1"
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
