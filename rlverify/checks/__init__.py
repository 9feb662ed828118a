"""Checks for any algorithm: rules that look for known kinds of bugs, each proven by planting such a bug.

Three ways to run them: `check_algorithm` in Python, `parametrize_with_checks` in pytest, ``rlverify check`` in a shell.
A `Suite` has a project's own checks and claims.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from rlverify.checks import generic_faults as faults
from rlverify.checks import suite_checks as checks
from rlverify.checks.adapter import Adapter, NotSupportedError
from rlverify.checks.check_records import CheckFinding, CheckRecord, Proof, Status
from rlverify.checks.checkpoints import check_checkpoint
from rlverify.checks.engine import check_algorithm, check_subject
from rlverify.checks.env_states import check_env_state
from rlverify.checks.known_failures import KnownFailure
from rlverify.checks.pytest_door import parametrize_with_checks
from rlverify.checks.subjects import Subject, subject
from rlverify.checks.suites import Suite
from rlverify.checks.table import details, table

if TYPE_CHECKING:
    from rlverify.checks.optimizers import check_optimizer
    from rlverify.checks.transforms import check_gradient_transform

OF_TORCH: Final = {
    "check_gradient_transform": "rlverify.checks.transforms",
    "check_optimizer": "rlverify.checks.optimizers",
}
"""Functions whose modules import torch, which this package does not need otherwise."""

__all__ = [
    "Adapter",
    "CheckFinding",
    "CheckRecord",
    "KnownFailure",
    "NotSupportedError",
    "Proof",
    "Status",
    "Subject",
    "Suite",
    "check_algorithm",
    "check_checkpoint",
    "check_env_state",
    "check_gradient_transform",
    "check_optimizer",
    "check_subject",
    "checks",
    "details",
    "faults",
    "parametrize_with_checks",
    "subject",
    "table",
]


def __getattr__(name: str) -> Any:
    """Import the functions that need torch when they are asked for."""
    if name in OF_TORCH:
        return getattr(importlib.import_module(OF_TORCH[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
