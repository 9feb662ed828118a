"""The file of a model, the same for all algorithms: settings, spaces, number of environments and training state."""

from __future__ import annotations

import os
from collections import UserDict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Final

import torch
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.utils import check_for_correct_spaces
from stable_baselines3.common.vec_env import VecEnv

from rlcore.checkpoint import codec
from rlcore.checkpoint.container import load_container, save_container
from rlcore.checkpoint.formats import FORMAT_MODEL
from rlcore.checkpoint.refusal import path_of, quoted, refusals_name, require_place, unusable
from rlcore.checkpoint.storage import os_errors_refused
from rlcore.errors import CheckpointError, SettingError, StateError, reject_unknown
from rlcore.state.generators import apply_generators, capture_generators
from rlcore.types import StateDict

FORMATS: Final = (FORMAT_MODEL, "exact_v1")
"""Values of ``format_version``. The first is written; earlier versions wrote the second for Stable-Baselines3's own."""
SPACES: Final = ("observation_space", "action_space")
REQUIRED: Final = ("format_version", "settings", *SPACES, "n_envs", "state")
OPTIONAL: Final = ("algorithm", "policy_class", "own_settings", "libraries", "seed", "device")
DEFAULT_ALGORITHM: Final = "DistributionalPPO"
"""The algorithm of earlier files, which do not name it."""


def write_model_file(
    path: Any, model: BaseAlgorithm, algorithm: str, *, settings: StateDict, state: StateDict, **more: Any
) -> None:
    """Write the file of ``model``, whole or not at all. Make its folder, and add ``.zip`` to a name without ending.

    :param path: a path or a binary file object
    :param settings: by name, encoded by :func:`rlcore.checkpoint.codec.encode`
    :param state: of every part by key
    :param more: other fields of :data:`OPTIONAL`, as plain values
    :raises CheckpointError: a value cannot be saved, or the file cannot be written; an older file is unchanged
    """
    require_place(path, "write")
    target = with_ending(path)
    if isinstance(target, str | PathLike):
        with refusals_name(target), os_errors_refused("written"):
            Path(target).parent.mkdir(parents=True, exist_ok=True)
    fields: dict[Any, Any] = {name: codec.encode(getattr(model, name), name) for name in SPACES}
    fields |= {"format_version": FORMAT_MODEL, "algorithm": algorithm, "settings": settings, "n_envs": model.n_envs}
    save_container(target, fields | {"state": state} | more)


def read_model_file(path: Any, *, require_digest: bool = False) -> dict[str, Any]:
    """Return the fields of a file of :func:`write_model_file`, or of that name with ``.zip``.

    :raises CheckpointError: the file cannot be read, or is not the file of a model
    """
    return read_content(load_container(existing(path), require_digest=require_digest), path)


def read_content(content: Mapping[Any, Any], path: Any) -> dict[str, Any]:
    """Return the fields of a model's file, with ``algorithm``; settings, spaces and state are still encoded.

    :raises CheckpointError: a field is missing, unknown or of the wrong type
    """
    with refusals_name(path):
        version = content.get("format_version")
        if not isinstance(version, str) or version not in FORMATS:
            raise StateError(
                f"is not the file of a model (format_version {quoted(version)}, known are {' and '.join(FORMATS)}); a "
                "checkpoint of parameters is read by set_parameters(path) of a model, or rlcore.load_checkpoint(path)"
            )
        record = {"algorithm": DEFAULT_ALGORITHM, **{str(name): value for name, value in content.items()}}
        missing, unknown = set(REQUIRED) - set(record), set(record) - {*REQUIRED, *OPTIONAL}
        if missing or unknown:
            raise StateError(f"lacks the fields {sorted(missing)}, and has the unknown {quoted(sorted(unknown))}")
        kinds = {"algorithm": str, "settings": dict, "n_envs": int, "state": dict}
        mistyped = [name for name, kind in kinds.items() if type(record[name]) is not kind]
        if mistyped or record["n_envs"] < 1:
            raise StateError(f"has unusable fields {mistyped or ['n_envs']}; the file is damaged")
    return record


class CustomObjects(UserDict[str, object]):
    """Objects given in place of what a file has or cannot hold, and every name under which one was asked for.

    :param given: by setting, ``policy_kwargs.activation_fn`` for a part of one
    """

    def __init__(self, given: Mapping[str, object] | None = None) -> None:
        super().__init__(given or {})
        self.names: set[str] = set()

    def __contains__(self, name: object) -> bool:
        self.names.add(str(name))
        return super().__contains__(name)

    def require_used(self) -> None:
        """Raise UnknownSettingError if the file has no field for one of the objects."""
        reject_unknown(self.data, "custom_objects", {"custom_objects": sorted(self.names)})


def decode_spaces(content: Mapping[str, Any], objects: Mapping[str, object]) -> dict[str, Any]:
    """Return ``observation_space`` and ``action_space``.

    :raises StateError: one of them is not a space
    """
    decoded = {name: codec.decode(content[name], name, objects) for name in SPACES}
    for name, space in decoded.items():
        if not isinstance(space, spaces.Space):
            raise StateError(f"{name} is not a space; the file is damaged")
    return decoded


def require_spaces(env: VecEnv, saved: Mapping[str, spaces.Space[Any]]) -> None:
    """Raise StateError unless the spaces of ``env`` are those of the saved model."""
    try:
        check_for_correct_spaces(env, *(saved[name] for name in SPACES))
    except ValueError as error:
        raise StateError(f"the environment is of another kind than the model's: {error}") from error


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


@contextmanager
def generators_untouched() -> Iterator[None]:
    """Leave the global generators as they were before."""
    state = capture_generators()
    try:
        yield
    finally:
        apply_generators(state)


def with_ending(path: Any) -> Any:
    """Add ``.zip`` to a path without ending, as Stable-Baselines3 does."""
    is_path = isinstance(path, str | PathLike)
    return Path(f"{path}.zip") if is_path and path and not Path(path).suffix else path


def existing(path: Any) -> Any:
    """Return the path as it is given, or with ``.zip`` where it is not a file.

    :raises SettingError: it is neither a path nor a binary file object
    """
    require_place(path, "read")
    is_path = isinstance(path, str | PathLike)
    return with_ending(path) if is_path and not os.path.isfile(path) else path  # noqa: PTH113  # never raises
