"""Checkpoint files: reading them executes nothing, and writing them never loses the old one."""
