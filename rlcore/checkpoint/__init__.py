"""Checkpoint files: reading them executes nothing, and writing them never loses the old one."""

from rlcore.checkpoint.container import load_container, save_container, write_atomic
from rlcore.checkpoint.formats import FORMAT_V1, FORMAT_V2, Checkpoint, load_checkpoint, save_checkpoint

__all__ = [
    "FORMAT_V1",
    "FORMAT_V2",
    "Checkpoint",
    "load_checkpoint",
    "load_container",
    "save_checkpoint",
    "save_container",
    "write_atomic",
]
