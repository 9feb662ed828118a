"""Format v1: a bare policy state dict, which is all that an older population saved."""

from __future__ import annotations

import torch

from rlcore.checkpoint import container, schema
from rlcore.checkpoint.refusal import PathOrFile, refusals_name
from rlcore.types import StateDict


def is_v1(payload: StateDict) -> bool:
    """Say whether this is a policy state dict: names and tensors, nothing else."""
    return bool(payload) and all(
        isinstance(name, str) and isinstance(value, torch.Tensor) for name, value in payload.items()
    )


def from_payload(payload: StateDict) -> schema.Checkpoint:
    """Return the policy as a checkpoint without step, performance and every other part of the learner."""
    return schema.Checkpoint(schema.FORMAT_V1, {"policy": payload}, step=None, performance=None)


def save_policy(path: PathOrFile, policy: StateDict) -> None:
    """Write a policy state dict as it is, with a digest, atomically; for populations that still hand over no more.

    :raises CheckpointError: anything but names and tensors, or a failed write; an older file is unchanged
    """
    with refusals_name(path):
        schema.check_policy(policy, "the policy")
    container.save_container(path, policy)
