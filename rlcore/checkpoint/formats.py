"""The formats of checkpoints: what each holds, how it is written, and which one a file has."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Final

import torch

from rlcore.checkpoint import container, storage
from rlcore.checkpoint.refusal import PathOrFile, RefusedError, quoted, refusals_name
from rlcore.errors import ResumeWarning
from rlcore.types import StateDict
from rlcore.warn import warn_caller

FORMAT_V1: Final = "v1_policy_only"
"""A bare policy state dict, as older populations wrote it; written for callers that still give no more."""

FORMAT_V2: Final = "v2_full_parameters"
"""{format_version, data, step, performance}, where data holds every part of the learner."""

FORMAT_MODEL: Final = "model_v1"
"""What a model's own ``save`` writes, which is no checkpoint."""

_FIELDS: Final = ("format_version", "data", "step", "performance")
_REQUIRED_DATA: Final = ("policy", "policy.optimizer")
_OPTIONAL_DATA: Final = (
    *("vgs_state", "kl_penalty_state", "entropy_state", "return_scale_state"),
    *("normalizer_state", "lstm_state", "rng_state"),
)
_THIRD_FORMAT: Final = ("model_state_dict", "optimizer_state_dict", "vgs_state_dict")


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint file.

    :param format_version: FORMAT_V1 or FORMAT_V2
    :param data: the learner's parts by name, as ``get_parameters`` gives them; of a v1 file only ``policy``
    :param step: training step at which it was saved, at least 0; None for a v1 file
    :param performance: the population member's score then, which may be NaN; None for a v1 file
    """

    format_version: str
    data: StateDict
    step: int | None
    performance: float | None


def save_checkpoint(path: PathOrFile, parameters: StateDict, *, step: int, performance: float) -> None:
    """Write a v2 checkpoint: exactly ``{format_version, data, step, performance}``, with a digest, atomically.

    :param path: a path, or a binary file object
    :param parameters: what the model's ``get_parameters`` returned; ``policy`` and ``policy.optimizer`` are required
    :param step: training step, at least 0
    :param performance: the score at that step; NaN and infinity are kept
    :raises CheckpointError: parameters that ``load_checkpoint`` would refuse, or a failed write; an older file is
        unchanged
    """
    payload: StateDict = {
        "format_version": FORMAT_V2,
        "data": parameters,
        "step": _plain(step, Integral, int),
        "performance": _plain(performance, Real, float),
    }
    with refusals_name(path):
        _v2_from(payload)
    container.save_container(path, payload)


def save_policy(path: PathOrFile, policy: StateDict) -> None:
    """Write a policy state dict as it is, with a digest, atomically; for populations that still hand over no more.

    :raises CheckpointError: anything but names and tensors, or a failed write; an older file is unchanged
    """
    with refusals_name(path):
        _check_policy(policy, "the policy")
    container.save_container(path, policy)


def load_checkpoint(
    path: PathOrFile,
    *,
    map_location: str | torch.device = "cpu",
    require_digest: bool = False,
    max_bytes: int = storage.DEFAULT_MAX_BYTES,
) -> Checkpoint:
    """Read a v2 checkpoint, or a v1 file (a bare policy state dict), without executing anything in it.

    A v1 file brings a ResumeWarning, because only the policy is in it; files of that format never carried a digest.
    A v2 file without digest brings a UserWarning. A missing optional part of ``data`` brings none: only the learner
    knows which it needs.

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
        return _v2_from(payload)
    if is_v1(payload):
        return Checkpoint(FORMAT_V1, {"policy": payload}, step=None, performance=None)
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


def is_v1(payload: StateDict) -> bool:
    """Say whether this is a policy state dict: names and tensors, nothing else."""
    return bool(payload) and all(
        isinstance(name, str) and isinstance(value, torch.Tensor) for name, value in payload.items()
    )


def _v2_from(payload: StateDict) -> Checkpoint:
    version = payload["format_version"]
    if isinstance(version, str) and version == FORMAT_MODEL:
        raise RefusedError("was written by a model's save(); read it with DistributionalPPO.load")
    if not isinstance(version, str) or version != FORMAT_V2:
        raise RefusedError(f"has the unknown format_version {_described(version)}; this version reads {FORMAT_V2}")
    _check_names(payload, _FIELDS, (), "the checkpoint")
    step: Any = payload["step"]
    performance: Any = payload["performance"]
    data: Any = payload["data"]
    _require(type(step) is int and step >= 0, "'step' must be an integer of at least 0", step)
    _require(type(performance) is float, "'performance' must be a float", performance)
    _require(isinstance(data, dict), "'data' must be a dict", data)
    _check_names(data, _REQUIRED_DATA, _OPTIONAL_DATA, "'data'")
    _check_policy(data["policy"], "'data'['policy']")
    optimizer = data["policy.optimizer"]
    _require(isinstance(optimizer, dict), "'data'['policy.optimizer'] must be a dict", optimizer)
    for name in _OPTIONAL_DATA:
        part = data.get(name)
        _require(part is None or isinstance(part, dict), f"'data'[{name!r}] must be a dict or None", part)
    return Checkpoint(FORMAT_V2, data, step=step, performance=performance)


def _plain(value: Any, kind: type, plain: type) -> Any:
    """Return a number of NumPy or Python as Python's; anything else as it is, as a bool."""
    return plain(value) if isinstance(value, kind) and not isinstance(value, bool) else value


def _check_policy(policy: Any, place: str) -> None:
    _require(isinstance(policy, dict) and policy, f"{place} must be a dict from parameter name to tensor", policy)
    for name, tensor in policy.items():
        is_named = isinstance(name, str) and isinstance(tensor, torch.Tensor)
        _require(is_named, f"{place}[{quoted(name)}] must be a tensor under a name", tensor)


def _check_names(found: StateDict, required: tuple[str, ...], optional: tuple[str, ...], place: str) -> None:
    for name in found:
        if name not in required and name not in optional:
            known = ", ".join((*required, *optional))
            raise RefusedError(f"{place} has the unknown key {quoted(name)}; known are {known}")
    for name in required:
        if name not in found:
            raise RefusedError(f"{place} lacks {name!r}")


def _require(condition: object, wanted: str, found: object) -> None:
    if not condition:
        raise RefusedError(f"{wanted}, and is {_described(found)}")


def _described(value: object) -> str:
    """Return what a value is, in a few words that are safe to print."""
    if isinstance(value, dict | list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    return "a tensor" if isinstance(value, torch.Tensor) else quoted(value)
