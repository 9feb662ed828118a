"""Reads a checkpoint file of any known format, and says what the unknown ones are."""

from __future__ import annotations

import torch

from rlcore.checkpoint import container, storage, v1, v2
from rlcore.checkpoint.refusal import PathOrFile, RefusedError, quoted, refusals_name
from rlcore.checkpoint.schema import FORMAT_MODEL, FORMAT_V1, FORMAT_V2, Checkpoint, describe
from rlcore.errors import ResumeWarning
from rlcore.types import StateDict
from rlcore.warn import warn_caller

_THIRD_FORMAT = frozenset({"model_state_dict", "optimizer_state_dict", "vgs_state_dict"})


def load_checkpoint(
    path: PathOrFile,
    *,
    map_location: str | torch.device = "cpu",
    require_digest: bool = False,
    max_bytes: int = storage.DEFAULT_MAX_BYTES,
) -> Checkpoint:
    """Read a v2 checkpoint, or a v1 file (a bare policy state dict), without executing anything in it.

    A v1 file brings a ResumeWarning, because only the policy is in it; files of that format never carried a digest.
    A v2 file without digest brings a UserWarning. Which optional part of ``data`` a learner needs, only the learner
    knows, so a missing one is not remarked on here.

    :param path: a path, or a binary file object
    :param map_location: device for the tensors
    :param require_digest: refuse a file without digest instead of warning
    :param max_bytes: refuse a larger file before reading it
    :raises CheckpointError: truncated, damaged, foreign, of unknown format, mistyped, or holding anything but tensors
        and plain Python
    """
    payload, has_digest = container.read_container(
        path, map_location=map_location, require_digest=require_digest, max_bytes=max_bytes
    )
    with refusals_name(path):
        checkpoint = from_payload(payload)
    if checkpoint.format_version == FORMAT_V1:
        message = f"{FORMAT_V1}: the file holds only the policy, no optimizer and no statistics"
        warn_caller(message, ResumeWarning)
    elif not has_digest:
        container.warn_of_missing_digest(path)
    return checkpoint


def from_payload(payload: StateDict) -> Checkpoint:
    """Find out the format of what a file holds and return it as a checkpoint, without a warning.

    :raises RefusedError: an unknown format, or fields that do not fit the known one
    """
    if "format_version" in payload:
        _check_version(payload["format_version"])
        return v2.from_payload(payload)
    if v1.is_v1(payload):
        return v1.from_payload(payload)
    third = sorted(name for name in _THIRD_FORMAT if name in payload)
    if third:
        raise RefusedError(
            f"holds {', '.join(third)}: the checkpoint dict that was once proposed and never adopted; load its parts "
            f"into a model and save that with save_checkpoint ({FORMAT_V2})"
        )
    raise RefusedError(
        f"has no format_version and is no policy state dict either (its keys: {quoted([*payload][:5])}); "
        f"known are {FORMAT_V2} and {FORMAT_V1}"
    )


def _check_version(version: object) -> None:
    if isinstance(version, str) and version == FORMAT_MODEL:
        raise RefusedError("was written by a model's save(); read it with DistributionalPPO.load")
    if not isinstance(version, str) or version != FORMAT_V2:
        raise RefusedError(f"has the unknown format_version {describe(version)}; this version reads {FORMAT_V2}")
