"""What every test shares: one thread, and how many examples a property is tried on."""

from __future__ import annotations

import gc
import os
import tempfile
from pathlib import Path

import torch
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

from tests.support.costly import USUAL_EXAMPLES

DATABASE = Path(__file__).parents[1] / ".hypothesis" / "examples"

torch.set_num_threads(1)

os.environ["RLCORE_TRITON"] = "1"
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before anything imports Triton, which then runs kernels on the CPU

_LOGS = tempfile.TemporaryDirectory(prefix="sb3-logs-", ignore_cleanup_errors=True)
os.environ["SB3_LOGDIR"] = _LOGS.name  # else every model that learns leaves a folder behind

settings.register_profile("default", deadline=None, max_examples=USUAL_EXAMPLES, derandomize=True, database=None)
# Every value is given, because Hypothesis derandomises and keeps no database wherever the variable CI is set.
settings.register_profile(
    "search",
    deadline=None,
    max_examples=2000,
    derandomize=False,
    database=DirectoryBasedExampleDatabase(DATABASE),
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_collection_finish() -> None:
    """Nothing imported or collected is garbage: collections pass over it, here and in the processes that tests fork."""
    gc.freeze()


def pytest_sessionstart() -> None:
    """While mutation testing records which test executes what, other processes must not look for its settings."""
    if os.environ.get("MUTANT_UNDER_TEST") == "stats":
        del os.environ["MUTANT_UNDER_TEST"]
