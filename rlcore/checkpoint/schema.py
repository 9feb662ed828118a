"""What a checkpoint is: the names of its formats and parts, and what each must be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import torch

from rlcore.checkpoint.refusal import RefusedError, quoted
from rlcore.types import StateDict

FORMAT_V1: Final = "v1_policy_only"
"""A bare policy state dict, as older populations wrote it; written for callers that still give no more."""

FORMAT_V2: Final = "v2_full_parameters"
"""{format_version, data, step, performance}, where data holds every part of the learner."""

FORMAT_MODEL: Final = "model_v1"
"""What a model's own ``save`` writes, which is no checkpoint."""

V2_FIELDS: Final = ("format_version", "data", "step", "performance")
V2_REQUIRED_DATA: Final = ("policy", "policy.optimizer")
V2_OPTIONAL_DATA: Final = (
    "vgs_state",
    "kl_penalty_state",
    "entropy_state",
    "return_scale_state",
    "normalizer_state",
    "lstm_state",
    "rng_state",
)


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint file holds.

    :param format_version: FORMAT_V1 or FORMAT_V2
    :param data: the learner's parts by name, as ``get_parameters`` gives them; of a v1 file only ``policy``
    :param step: training step at which it was saved, at least 0; None for a v1 file
    :param performance: the population member's score then, which may be NaN; None for a v1 file
    """

    format_version: str
    data: StateDict
    step: int | None
    performance: float | None


def check_policy(policy: object, place: str) -> None:
    """Refuse a policy state that is not a dict from parameter name to tensor with at least one entry."""
    if not isinstance(policy, dict) or not policy:
        raise RefusedError(f"{place} must be a dict from parameter name to tensor, and is {describe(policy)}")
    for name, tensor in policy.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise RefusedError(f"{place}[{quoted(name)}] must be a tensor under a name, and is {describe(tensor)}")


def check_names(found: Iterable[object], *, required: Iterable[str], optional: Iterable[str] = (), place: str) -> None:
    """Refuse missing and unknown names; for an unknown one the closest known name is suggested."""
    names = set(found)
    known = [*required, *optional]
    unknown = sorted(names - set(known), key=str)
    if unknown:
        close = difflib.get_close_matches(str(unknown[0])[:80], known, n=1)
        remedy = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
        raise RefusedError(f"{place} has the unknown key {quoted(unknown[0])}; {remedy}")
    missing = [name for name in required if name not in names]
    if missing:
        raise RefusedError(f"{place} lacks {missing[0]!r}")


def checked_data(data: object, place: str) -> StateDict:
    """Return ``data``, refusing it unless every part of a v2 checkpoint is there, known and of the right type."""
    if not isinstance(data, dict):
        raise RefusedError(f"{place} must be a dict, and is {describe(data)}")
    check_names(data, required=V2_REQUIRED_DATA, optional=V2_OPTIONAL_DATA, place=place)
    check_policy(data["policy"], f"{place}['policy']")
    if not isinstance(data["policy.optimizer"], dict):
        raise RefusedError(f"{place}['policy.optimizer'] must be a dict, and is {describe(data['policy.optimizer'])}")
    for name in V2_OPTIONAL_DATA:
        part = data.get(name)
        if part is not None and not isinstance(part, dict):
            raise RefusedError(f"{place}[{name!r}] must be a dict or None, and is {describe(part)}")
    return data


def describe(value: object) -> str:
    """Return what a value is, in a few words that are safe to print."""
    if isinstance(value, dict | list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, torch.Tensor):
        return "a tensor"
    return quoted(value)
