"""The formats of files: what checkpoints and the files of models hold, and how they are written and told apart."""

from __future__ import annotations

import inspect
import os
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from rlcore.checkpoint import codec, container
from rlcore.checkpoint.container import PathOrFile, path_of, refusals_name, unusable
from rlcore.checkpoint.torch_file import RefusedError
from rlcore.errors import CheckpointError, ResumeWarning, SettingError, StateError, quoted, warn_caller
from rlcore.types import StateDict

FORMAT_V1: Final = "v1_policy_only"
"""A bare policy state dict, as older populations wrote it; written for callers that still give no more."""

FORMAT_V2: Final = "v2_full_parameters"
"""{format_version, data, step, performance}, where data holds every part of the learner."""

FORMATS_OF_MODELS: Final = ("model_v1", "exact_v1")
"""What a model's own ``save`` writes. Earlier versions wrote the second for algorithms of Stable-Baselines3."""

SPACES: Final = ("observation_space", "action_space")

DEFAULT_ALGORITHM: Final = "DistributionalPPO"
"""The algorithm of earlier files, which do not name it."""

_DICT = (dict, OrderedDict)
_PARTS: Final = ("vgs_state", "kl_penalty_state", "entropy_state", "return_scale_state", "normalizer_state")
# Which types each field may have: none for any, and None among them for a field that may be missing.
_CHECKPOINT = {"format_version": (str,), "data": _DICT, "step": (int,), "performance": (float,)}
_DATA = {
    **dict.fromkeys(("policy", "policy.optimizer"), _DICT),
    **dict.fromkeys((*_PARTS, "lstm_state", "rng_state"), (*_DICT, type(None))),
}
_MODEL: dict[str, tuple[type, ...]] = {
    "format_version": (str,),
    "algorithm": (str,),
    "settings": _DICT,
    "n_envs": (int,),
    "state": _DICT,
    **dict.fromkeys(SPACES, (object,)),
    **dict.fromkeys(("policy_class", "own_settings", "libraries", "seed", "device"), (object, type(None))),
}


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
    numbers: Any = {"step": step, "performance": performance}
    payload: StateDict = {"format_version": FORMAT_V2, "data": parameters, **numbers}
    payload.update({name: number.item() for name, number in numbers.items() if isinstance(number, np.generic)})
    with refusals_name(path):
        _v2_from(payload)
    container.save_container(path, payload)


def save_policy(path: PathOrFile, policy: StateDict) -> None:
    """Write a policy state dict as it is, with a digest, atomically; for populations that still hand over no more.

    :raises CheckpointError: anything but names and tensors, or a failed write; an older file is unchanged
    """
    with refusals_name(path):
        _check_policy(policy)
    container.save_container(path, policy)


def load_checkpoint(
    path: PathOrFile, *, map_location: str | torch.device = "cpu", require_digest: bool = False
) -> Checkpoint:
    """Read a v2 checkpoint, or a v1 file (a bare policy state dict), without executing anything in it.

    A v1 file brings a ResumeWarning, because only the policy is in it; files of that format never carried a digest.
    A v2 file without digest brings a UserWarning. A missing optional part of ``data`` brings none: only the learner
    knows which it needs.

    :param path: a path, or a binary file object
    :param map_location: device for the tensors
    :param require_digest: refuse a file without digest instead of warning
    :raises CheckpointError: truncated, damaged, foreign, of unknown format, mistyped, or holding anything but tensors
        and plain Python
    """
    payload, has_digest = container.read_container(path, map_location, require_digest)
    with refusals_name(path):
        checkpoint = from_payload(payload)
    if checkpoint.format_version == FORMAT_V1:
        warn_of_v1()
    elif not has_digest:
        container.warn_of_missing_digest(path)
    return checkpoint


def warn_of_v1() -> None:
    """Warn that nothing but the policy is read."""
    warn_caller(f"{FORMAT_V1}: the file holds only the policy, no optimizer and no statistics", ResumeWarning)


def from_payload(payload: StateDict) -> Checkpoint:
    """Find out the format of what a file holds and return it as a checkpoint, without a warning.

    :raises RefusedError: an unknown format, or fields that do not fit the known one
    """
    if "format_version" in payload:
        return _v2_from(payload)
    if is_v1(payload):
        return Checkpoint(FORMAT_V1, {"policy": payload}, step=None, performance=None)
    raise RefusedError(
        f"has no format_version and is no policy state dict (its keys: {quoted([*payload][:5])}); what was proposed "
        f"only is not read: load its parts into a model, and write that with save_checkpoint ({FORMAT_V2})"
    )


def is_v1(payload: StateDict) -> bool:
    """Say whether this is a policy state dict: names and tensors, nothing else."""
    return _is_policy(payload)


def _is_policy(payload: Any) -> bool:
    return bool(payload) and all(type(name) is str and isinstance(each, torch.Tensor) for name, each in payload.items())


def _check_policy(policy: Any) -> None:
    if not _is_policy(policy):
        raise RefusedError("the policy must be a dict from parameter name to tensor")


def _v2_from(payload: Mapping[Any, Any]) -> Checkpoint:
    version = payload["format_version"]
    if not isinstance(version, str) or version != FORMAT_V2:
        raise RefusedError(
            f"has the format_version {quoted(version)}, and {FORMAT_V2} is read here; DistributionalPPO.load reads the "
            "file of a model"
        )
    _check_fields(payload, _CHECKPOINT, "the checkpoint")
    step: int = payload["step"]
    if step < 0:
        raise RefusedError(f"'step' must be at least 0, and is {step}")
    _check_fields(payload["data"], _DATA, "'data'")
    _check_policy(payload["data"]["policy"])
    return Checkpoint(FORMAT_V2, payload["data"], step=step, performance=payload["performance"])


def _check_fields(found: Mapping[Any, Any], kinds: Mapping[str, tuple[type, ...]], place: str) -> None:
    typed = {name: types for name, types in kinds.items() if name in found and object not in types}
    problems = {
        "lacks": [name for name, types in kinds.items() if name not in found and type(None) not in types],
        "has the unknown fields": [name for name in found if name not in kinds],
        "has values of the wrong type in": [name for name, types in typed.items() if type(found[name]) not in types],
    }
    said = ", ".join(f"{what} {quoted(names, 120)}" for what, names in problems.items() if names)
    if said:
        raise RefusedError(f"{place} {said}; known are {', '.join(kinds)}")


def _check_arrays(record: Mapping[Any, Any]) -> None:
    size = codec.array_bytes([part for name, part in record.items() if name != "state"])
    if size > codec.MOST_ARRAY_BYTES:
        raise RefusedError(f"its settings and spaces have arrays of {size} bytes, of at most {codec.MOST_ARRAY_BYTES}")


def write_model_file(
    path: Any, model: BaseAlgorithm, algorithm: str, *, settings: StateDict, state: StateDict, **more: Any
) -> None:
    """Write the file of ``model``, whole or not at all. Make its folder, and add ``.zip`` to a name without ending.

    :param path: a path or a binary file object
    :param settings: by name, encoded by :func:`rlcore.checkpoint.codec.encode`
    :param state: of every part by key
    :param more: other fields of a model's file, as plain values
    :raises CheckpointError: a value cannot be saved, or the file cannot be written; an older file is unchanged
    """
    target = with_ending(path)
    if isinstance(target, str | PathLike):
        with refusals_name(target, "written"):
            Path(target).parent.mkdir(parents=True, exist_ok=True)
    fields: dict[Any, Any] = {name: codec.encode(getattr(model, name), name) for name in SPACES}
    fields |= {"format_version": FORMATS_OF_MODELS[0], "algorithm": algorithm, "settings": settings}
    with refusals_name(target, "written"):
        _check_arrays(fields)
    container.save_container(target, fields | {"n_envs": model.n_envs, "state": state} | more)


def constructor_names(algorithm: type) -> list[str]:
    """Return the parameters of a class's constructor, with those of its parents as far as ``**keywords`` reach them."""
    found: dict[str, None] = {}
    for constructor in [vars(each)["__init__"] for each in algorithm.__mro__ if "__init__" in vars(each)]:
        parameters = list(inspect.signature(constructor).parameters.values())[1:]
        variable = [each for each in parameters if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
        found |= {each.name: None for each in parameters if each not in variable}
        if all(each.kind is not each.VAR_KEYWORD for each in variable):
            break
    return list(found)


def require_spaces_of(content: Mapping[str, Any], env: VecEnv) -> None:
    """Raise StateError if an environment has other spaces than the model in a file."""
    for name in SPACES:
        if (own := getattr(env, name)) != content[name] or _keys(own) != _keys(content[name]):
            text = f"its {name} is {content[name]!s:.200}, and this environment's {own!s:.200}"
            raise StateError(f"{text}; give the one it is for")


def _keys(space: object) -> list[Any]:
    """Return the keys of a Dict space, with those inside, in the order in which features are joined."""
    return [(key, _keys(each)) for key, each in space.items()] if isinstance(space, spaces.Dict) else []


def read_model_file(path: Any, *, require_digest: bool = False) -> dict[str, Any]:
    """Return the fields of a file of :func:`write_model_file`, or of that name with ``.zip``.

    :raises CheckpointError: the file cannot be read, or is not the file of a model
    """
    return read_content(container.load_container(existing(path), require_digest=require_digest), path)


def read_content(content: Mapping[Any, Any], path: Any) -> dict[str, Any]:
    """Return the fields of a model's file, with ``algorithm``; settings, spaces and state are still encoded.

    :raises CheckpointError: a field is missing, unknown or of the wrong type
    """
    version = content.get("format_version")
    record = {"algorithm": DEFAULT_ALGORITHM, **content}
    with refusals_name(path):
        if not isinstance(version, str) or version not in FORMATS_OF_MODELS:
            raise RefusedError(
                f"is not the file of a model (format_version {quoted(version)}, known are "
                f"{' and '.join(FORMATS_OF_MODELS)}); a checkpoint is read by set_parameters(path)"
            )
        _check_fields(record, _MODEL, "the file")
        _check_arrays(record)
        if record["n_envs"] < 1:
            raise RefusedError(f"n_envs is {record['n_envs']}; the file is damaged")
    return record


def decode_spaces(content: Mapping[str, Any], objects: Mapping[str, object]) -> dict[str, Any]:
    """Return ``observation_space`` and ``action_space``.

    :raises StateError: one of them is not a space
    """
    decoded = {name: codec.decode(content[name], name, objects) for name in SPACES}
    for name, space in decoded.items():
        if not isinstance(space, spaces.Space):
            raise StateError(f"{name} is not a space; the file is damaged")
    return decoded


@contextmanager
def refusals_of(path: Any, field: str, changes: Collection[str] = ()) -> Iterator[None]:
    """Turn whatever goes wrong with a file's content into a CheckpointError that names the file and the field.

    :param changes: settings that the caller asks for; with any, a SettingError is about them and passes
    """
    try:
        with refusals_name(path), unusable(field):
            yield
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise CheckpointError(path_of(path), f"asks for a model larger than this machine's memory: {error}") from error
    except SettingError as error:
        if changes:
            raise
        raise CheckpointError(path_of(path), f"holds a setting that cannot be used: {error}") from error


def with_ending(path: Any) -> Any:
    """Add ``.zip`` to a path without ending, as Stable-Baselines3 does."""
    is_path = isinstance(path, str | PathLike)
    return Path(f"{path}.zip") if is_path and path and not Path(path).suffix else path


def existing(path: Any) -> Any:
    """Return the path as it is given, or with ``.zip`` where it is not a file."""
    is_path = isinstance(path, str | PathLike)
    return with_ending(path) if is_path and not os.path.isfile(path) else path  # noqa: PTH113  # never raises
