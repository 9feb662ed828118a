"""Checks for any algorithm: rules that look for known kinds of bugs, each proven by planting such a bug.

Three ways to run them: `check_algorithm` in Python, `parametrize_with_checks` in pytest, ``rlverify check`` in a shell.
A `Suite` has a project's own checks and claims.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from rlverify.checks import rules as _rules  # noqa: F401  # registers them
from rlverify.checks import suites as checks
from rlverify.checks.adapters.adapter import Adapter, NotSupportedError
from rlverify.checks.engine import faults as faults
from rlverify.checks.engine.check_records import CheckFinding, CheckRecord, KnownFailure, Proof, Status
from rlverify.checks.engine.rule_runs import check_algorithm, check_subject
from rlverify.checks.engine.subjects import Subject, subject
from rlverify.checks.pytest_door import details, parametrize_with_checks, table
from rlverify.checks.suites import Suite

if TYPE_CHECKING:
    from rlverify.checks.adapters.sb3 import SB3Adapter
    from rlverify.checks.adapters.script import Script
    from rlverify.checks.engine.kinds import CheckOptions
    from rlverify.checks.rules.checkpoints import check_checkpoint
    from rlverify.checks.rules.env_states import check_env_state
    from rlverify.checks.rules.optimizers import check_optimizer
    from rlverify.checks.rules.transforms import check_gradient_transform

IMPORTED_LATER: Final = {
    "CheckOptions": "rlverify.checks.engine.kinds",
    "SB3Adapter": "rlverify.checks.adapters.sb3",
    "Script": "rlverify.checks.adapters.script",
    "check_checkpoint": "rlverify.checks.rules.checkpoints",
    "check_env_state": "rlverify.checks.rules.env_states",
    "check_gradient_transform": "rlverify.checks.rules.transforms",
    "check_optimizer": "rlverify.checks.rules.optimizers",
}
"""What is in modules that the checks of an algorithm do not need; some import torch or Stable-Baselines3."""

__all__ = [
    "Adapter",
    "CheckFinding",
    "CheckOptions",
    "CheckRecord",
    "KnownFailure",
    "NotSupportedError",
    "Proof",
    "SB3Adapter",
    "Script",
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
    """Import what few need when it is asked for."""
    if name in IMPORTED_LATER:
        return getattr(importlib.import_module(IMPORTED_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
