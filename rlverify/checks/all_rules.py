"""Imports every family of rules, which registers them in their order."""

from rlverify.checks import gates, identity, resume, sharing

__all__ = ["gates", "identity", "resume", "sharing"]
