"""Imports every family of rules, which registers them in their order."""

from rlverify.checks import (
    copying,
    gates,
    identity,
    normalizers,
    numerics,
    recurrence,
    resume,
    safety,
    settings,
    sharing,
)

__all__ = [
    "copying",
    "gates",
    "identity",
    "normalizers",
    "numerics",
    "recurrence",
    "resume",
    "safety",
    "settings",
    "sharing",
]
