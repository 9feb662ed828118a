"""The content of a model file: read field by field, and turned back from plain values."""

from __future__ import annotations

import io
from collections import UserDict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
from gymnasium import spaces
from stable_baselines3.common.callbacks import BaseCallback, CallbackList, CheckpointCallback, EventCallback

from rlcore.checkpoint import codec
from rlcore.checkpoint.container import load_container
from rlcore.checkpoint.formats import FORMAT_MODEL
from rlcore.checkpoint.refusal import path_of, refusals_name, require_place, unusable
from rlcore.errors import CheckpointError, ResumeWarning, SettingError, reject_unknown
from rlcore.optim.settings import REMOVED_ESTIMATORS
from rlcore.ppo.construction import require_spaces
from rlcore.ppo.policy import DistributionalRecurrentPolicy
from rlcore.ppo.settings import PPOSettings, resolve_settings
from rlcore.warn import warn_caller

FIELDS = ("format_version", "policy_class", "settings", "observation_space", "action_space", "n_envs", "state")
"""What a model file holds, and nothing else but OWN_SETTINGS where a subclass has some."""
OWN_SETTINGS = "own_settings"


ENCODED: dict[str, type] = {
    "policy_class": DistributionalRecurrentPolicy,
    "observation_space": spaces.Space,
    "action_space": spaces.Space,
}
"""Encoded fields next to the settings, with the type that each decodes to."""


def read_model_file(path: str | Path | io.BufferedIOBase) -> dict[str, Any]:
    """The content of a file of ``save()``, checked field by field."""
    return read_model_content(load_container(existing(path)), path)


def read_model_content(content: Mapping[Any, Any], path: Any) -> dict[str, Any]:
    """
    :raises CheckpointError: if the content is no model's
    """
    shown = path_of(path)
    if content.get("format_version") != FORMAT_MODEL:
        raise CheckpointError(
            shown,
            f"no model file (format_version {str(content.get('format_version'))[:60]!r}); a checkpoint of parameters "
            "is read by set_parameters(path) on a model, or rlcore.load_checkpoint(path)",
        )
    if set(content) - {OWN_SETTINGS} != set(FIELDS):
        raise CheckpointError(shown, f"a model file holds {', '.join(FIELDS)}; this one {sorted(map(str, content))}")
    mistyped = [name for name in ("settings", "state") if not isinstance(content[name], dict)]
    if not isinstance(content.get(OWN_SETTINGS, {}), dict):
        mistyped.append(OWN_SETTINGS)
    n_envs = content["n_envs"]
    if isinstance(n_envs, bool) or not isinstance(n_envs, int) or n_envs < 1:
        mistyped.append("n_envs")
    if mistyped:
        raise CheckpointError(shown, f"mistyped fields {mistyped}")
    given, known = set(map(str, content["settings"])), set(PPOSettings.model_fields)
    if given - known:
        raise CheckpointError(shown, f"unknown settings {sorted(given - known)}")
    if known - given:
        warn_caller(f"{shown}: has no {sorted(known - given)}; they take their defaults", ResumeWarning)
    return {str(key): value for key, value in content.items()}


def decoded(
    content: Mapping[str, Any], custom_objects: Mapping[str, object], path: Any, changes: Collection[str] = ()
) -> dict[str, Any]:
    """The content with settings, spaces and policy class turned back from plain values.

    :param changes: settings that something else takes the place of, so that they may be unreadable
    :raises UnknownSettingError: for a custom object that stands for nothing in the file
    """
    objects = dict(custom_objects)
    if "lr_schedule" in objects:  # which rl-baselines3-zoo gives: the name that the schedule has on a model
        objects["learning_rate"] = objects.pop("lr_schedule")
    asked_for = _AskedFor(objects)
    settings = _decoded_settings(content["settings"], asked_for, path, changes)
    own = _decoded_settings(content.get(OWN_SETTINGS, {}), asked_for, path, changes)
    with refusals_of(path, "a space or the policy class"):
        encoded: dict[str, Any] = {name: codec.decode(content[name], name, asked_for) for name in ENCODED}
    reject_unknown(objects, "custom_objects", {"custom_objects": sorted(asked_for.names)})
    for name, wanted in ENCODED.items():
        value = encoded[name]
        if not (
            isinstance(value, type) and issubclass(value, wanted)
            if name == "policy_class"
            else isinstance(value, wanted)
        ):
            raise CheckpointError(path_of(path), f"{name!r} is no {wanted.__name__}")
    with refusals_of(path, "the settings"):
        resolve_settings(settings, asked=())
        require_spaces(**encoded)
    return {**content, **encoded, "settings": settings, OWN_SETTINGS: own}


def _decoded_settings(
    saved: Mapping[str, Any], asked_for: _AskedFor, path: Any, changes: Collection[str]
) -> dict[str, Any]:
    """What can be decoded; the rest must be in ``changes``."""
    settings: dict[str, Any] = {}
    for name, value in saved.items():
        if name in changes and value in list(REMOVED_ESTIMATORS):
            continue
        try:
            with refusals_of(path, f"the setting {name!r}"):
                settings[name] = codec.decode(value, name, asked_for)
        except CheckpointError:
            if name not in changes:
                raise
    return settings


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


class _AskedFor(UserDict[str, object]):
    """Custom objects, and every name under which one was asked for."""

    def __init__(self, custom_objects: Mapping[str, object]) -> None:
        super().__init__(custom_objects)
        self.names: set[str] = set()

    def __contains__(self, name: object) -> bool:
        self.names.add(str(name))
        return super().__contains__(name)


def with_ending(path: Any) -> Any:
    """``.zip`` for a path without ending, as in Stable-Baselines3."""
    if not isinstance(path, str | Path):
        return path
    return path if Path(path).suffix else Path(f"{path}.zip")


def existing(path: Any) -> Any:
    """The path as it is given, or with ``.zip`` where only that is a file.

    :raises SettingError: if it is neither a path nor a binary file object
    """
    require_place(path, "read")
    try:
        return with_ending(path) if isinstance(path, str | Path) and not Path(path).is_file() else path
    except OSError:
        return path  # reading it says what is wrong


STATISTICS_APART: Final = (
    "CheckpointCallback(save_vecnormalize=True) writes statistics that do not belong to the model file of the same "
    "name: a model file holds the state in which the rollout began, and the other file that of a later step. The model "
    "file has its own statistics, which load() gives to the environments; set save_vecnormalize=False."
)


def writes_statistics_apart(callback: BaseCallback) -> bool:
    """Whether a callback, or one that it calls, saves VecNormalize's statistics in a file of their own."""
    if isinstance(callback, CallbackList):
        return any(writes_statistics_apart(each) for each in callback.callbacks)
    if isinstance(callback, EventCallback) and callback.callback is not None:
        return writes_statistics_apart(callback.callback)
    return isinstance(callback, CheckpointCallback) and callback.save_vecnormalize
