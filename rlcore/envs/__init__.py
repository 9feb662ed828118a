"""Environments whose state can be saved and restored exactly."""

from rlcore.envs.resumable import ResumableEnv, SupportsState

__all__ = ["ResumableEnv", "SupportsState"]
