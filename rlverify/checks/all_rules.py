"""Imports every family of rules, which registers them in their order."""

from rlverify.checks import (
    gates,
    gates_of_copies,
    identity,
    normalizers,
    numerics,
    recurrence,
    resume,
    safety,
    sharing,
    training_settings,
)

__all__ = [
    "gates",
    "gates_of_copies",
    "identity",
    "normalizers",
    "numerics",
    "recurrence",
    "resume",
    "safety",
    "sharing",
    "training_settings",
]
