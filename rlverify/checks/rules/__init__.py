"""The rules for any algorithm; importing this package registers them in their order."""

from rlverify.checks.rules import (
    gates,
    identity,
    normalizers,
    numerics,
    recurrence,
    resume,
    resumed_options,
    rollouts,
    safety,
    training_settings,
)

__all__ = [
    "gates",
    "identity",
    "normalizers",
    "numerics",
    "recurrence",
    "resume",
    "resumed_options",
    "rollouts",
    "safety",
    "training_settings",
]
