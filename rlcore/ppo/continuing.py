"""Going on with a model from a file, as the one that would be built now: what differs is refused, not taken over."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlcore.checkpoint import codec
from rlcore.checkpoint.refusal import refusals_name, unusable
from rlcore.envs import vec_state as env_state
from rlcore.errors import CheckpointError, SettingError
from rlcore.ppo import model_content
from rlcore.ppo.algorithm import DistributionalPPO
from rlcore.ppo.settings import SHOWN, PPOSettings

_REMEDY = "give that again, or begin anew in another place"


def continued(path: str | Path | io.BytesIO, expected: DistributionalPPO) -> DistributionalPPO:
    """The model of a file in the environments of ``expected``, with its logger, ``verbose`` and ``tensorboard_log``.

    A setting that no file holds (a lambda) is the one of ``expected``.

    :param path: the file, or a file object with its content
    :param expected: as it would be built now
    :raises SettingError: another number of environments, another normalisation or another setting, with both values
    :raises CheckpointError: if the file cannot be read as a model or does not fit the environments
    """
    content = model_content.read_model_file(path)
    with refusals_name(path):
        _require_same_envs(content, expected)
        require_same_settings(content["settings"], expected)
        saved, own = content.get(model_content.OWN_SETTINGS, {}), expected.own_settings()
        own = {name: own[name] for name in own if name in saved}
        for name, asked in own.items():
            _require_same(name, saved[name], asked)
    given = {**{name: getattr(expected, name) for name in PPOSettings.model_fields}, **own}
    if isinstance(path, io.BytesIO):
        path.seek(0)
    model = type(expected).load(path, env=expected.get_env(), device=expected.device, custom_objects=given)
    if expected._custom_logger:
        model.set_logger(expected.logger)
    return model


def require_same_settings(saved: Mapping[str, Any], expected: DistributionalPPO) -> None:
    """
    :param saved: the settings of a model file
    :raises SettingError: naming the first setting that differs, with both values
    """
    for name, field in PPOSettings.model_fields.items():
        if name not in SHOWN:
            _require_same(name, saved.get(name, codec.encode(field.default, name)), getattr(expected, name))


def _require_same(name: str, before: Any, asked: object) -> None:
    """
    :param before: encoded as the file has it
    """
    if not codec.same(before, codec.encode(asked, name)):
        raise SettingError(
            name,
            f"{name}={asked!r} is asked for, and what is to go on was trained with {_shown(before, name)}; {_REMEDY}",
        )


def _require_same_envs(content: Mapping[str, Any], expected: DistributionalPPO) -> None:
    if content["n_envs"] != expected.n_envs:
        raise SettingError(
            "environment.n_envs",
            f"n_envs={expected.n_envs} is asked for, and what is to go on was trained in {content['n_envs']} "
            f"environments; {_REMEDY}",
        )
    assert expected.env is not None, "a model that is to train has environments"
    for name in ("observation_space", "action_space"):
        with unusable(name):
            trained_in = codec.decode(content[name], name, {})
        asked_space = getattr(expected, name)
        if trained_in != asked_space:
            raise SettingError(
                "environment.id",
                f"the environment has the {name} {asked_space}, and what is to go on was trained in one of "
                f"{trained_in}; {_REMEDY}",
            )
    before = content["state"].get("normalizer_state") is not None
    asked = env_state.capture_normalizer(expected.env) is not None
    if before != asked:
        raise SettingError(
            "environment.normalize",
            f"environment.normalize={asked} (VecNormalize) is asked for, and what is to go on was trained with "
            f"{before}; {_REMEDY}",
        )


def _shown(saved: Any, name: str) -> str:
    """A setting as the user wrote it, or as the file describes what it could not hold."""
    try:
        return repr(codec.decode(saved, name, {}))
    except CheckpointError:
        return repr(saved)
