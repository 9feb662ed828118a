"""Format v1: a bare policy state dict, which is all that an older population saved. Read only."""

from __future__ import annotations

import torch

from rlcore.checkpoint import schema
from rlcore.types import StateDict


def is_v1(payload: StateDict) -> bool:
    """Say whether this is a policy state dict: names and tensors, nothing else."""
    return bool(payload) and all(
        isinstance(name, str) and isinstance(value, torch.Tensor) for name, value in payload.items()
    )


def from_payload(payload: StateDict) -> schema.Checkpoint:
    """Return the policy as a checkpoint without step, performance and every other part of the learner."""
    return schema.Checkpoint(schema.FORMAT_V1, {"policy": payload}, step=None, performance=None)
