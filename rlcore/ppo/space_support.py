"""Which observation and action spaces a model takes; what it does not take is refused in one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import CombinedExtractor, NatureCNN

from rlcore.errors import SettingError
from rlcore.ppo.configured import ConfiguredPPO

if TYPE_CHECKING:
    from rlcore.ppo.policy import DistributionalRecurrentPolicy

SMALLEST_IMAGE = 36
"""Pixels that the three convolutions of Stable-Baselines3's NatureCNN need each way."""


def require_model(model: ConfiguredPPO) -> None:
    """The spaces of a model, before its network is built, must be ones that its policy takes.

    :raises SettingError: if they are not, or it has none yet
    """
    if getattr(model, "observation_space", None) is None or getattr(model, "action_space", None) is None:
        raise SettingError("env", "env=None gives no spaces to build a network for; pass an environment or its id")
    require(model.policy_class, model.observation_space, model.action_space, model.policy_kwargs)


def require(
    policy_class: type[DistributionalRecurrentPolicy],
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    policy_kwargs: Mapping[str, Any],
) -> None:
    """
    :raises SettingError: for spaces that this policy, with these settings, does not take
    """
    require_spaces(observation_space, action_space)
    require_policy(policy_class, observation_space, policy_kwargs)


def require_spaces(observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
    """
    :raises SettingError: for a space that no policy here takes
    """
    if isinstance(observation_space, spaces.Dict):
        if not len(observation_space):
            raise SettingError("env", "the observations are an empty Dict, so nothing could be learnt from them")
        for key, part in observation_space.items():
            _require_observation(part, f"the observations' part {key!r} is")
    else:
        _require_observation(observation_space, "the observations are")
    _require_action(action_space)


def _require_observation(space: spaces.Space[Any], subject: str) -> None:
    reason = _unusable_observation(space)
    if reason is not None:
        raise SettingError("env", f"{subject} {_shown(space)}, {reason}")


def _unusable_observation(space: spaces.Space[Any]) -> str | None:
    """Why no feature extractor takes the space, and what to do about it."""
    shape = space.shape
    if shape is not None and 0 in shape:
        return "which is empty, so nothing could be learnt from it; leave it out, or give at least one number"
    if shape == () and not isinstance(space, spaces.Discrete):
        return "which has no dimension; give it one, shape (1,) (gymnasium.wrappers.ReshapeObservation does, of a Box)"
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return "and a policy takes one level of a Dict; name every part in one Dict (FlattenObservation makes one Box)"
    if isinstance(space, spaces.Box):
        real = np.dtype(space.dtype).kind in "biuf" and np.dtype(space.dtype).itemsize <= 8
        return None if real else "and torch has no such numbers; give them as float32 or float64"
    if isinstance(space, spaces.MultiBinary):
        return None
    if not isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return "which no feature extractor reads; give them as Box, Discrete, MultiDiscrete, MultiBinary or a Dict"
    if len(space.shape or ()) > 1:
        return "which has more than one dimension; flatten it"
    return "which does not start at 0; subtract the start in a gymnasium.ObservationWrapper" if _offset(space) else None


def _require_action(space: spaces.Space[Any]) -> None:
    reason = _unusable_action(space)
    if reason is not None:
        raise SettingError("env", f"the actions are {_shown(space)}, {reason}")


def _unusable_action(space: spaces.Space[Any]) -> str | None:
    """Why no action distribution fits the space, and what to do about it."""
    if 0 in (space.shape or ()):
        return "which is empty, so there is nothing to choose; give at least one action"
    if isinstance(space, spaces.Box):
        if np.dtype(space.dtype).kind != "f":
            return "and a policy draws real numbers; take MultiDiscrete for whole numbers, or a Box of float32"
        bounded = bool(np.all(np.isfinite(space.low)) and np.all(np.isfinite(space.high)))
        return None if bounded else "and a bound is infinite; give the environment finite bounds for its actions"
    if isinstance(space, spaces.Discrete):
        return None
    if not isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        return "for which there is no distribution; take Box, Discrete, MultiDiscrete or MultiBinary"
    flat = isinstance(space.n, int) if isinstance(space, spaces.MultiBinary) else len(space.shape) == 1
    return None if flat else "which may have more than one dimension; flatten it"


def require_policy(
    policy_class: type[DistributionalRecurrentPolicy], space: spaces.Space[Any], policy_kwargs: Mapping[str, Any]
) -> None:
    """
    :raises SettingError: if the policy is not made for such observations; the message names the one that is
    """
    if isinstance(space, spaces.Dict) is not policy_class.takes_dict:
        found = f"a Dict of {sorted(space)}" if isinstance(space, spaces.Dict) else f"{_shown(space)}, no Dict"
        right = "MultiInputLstmPolicy" if isinstance(space, spaces.Dict) else "MlpLstmPolicy"
        raise SettingError(
            "policy", f"the observations are {found}, which {policy_class.__name__} does not read; use {right!r}"
        )
    extractor = policy_class.extractor_for(policy_kwargs)
    if issubclass(extractor, NatureCNN | CombinedExtractor):
        _require_images(extractor, space, _takes_normalized(policy_kwargs))


def _require_images(extractor: type, space: spaces.Space[Any], normalized: bool) -> None:
    """What a NatureCNN will read must be pictures, large enough."""
    parts = list(space.values()) if isinstance(space, spaces.Dict) else [space]
    images = [part for part in parts if is_image_space(part, normalized_image=normalized)]
    if issubclass(extractor, NatureCNN) and not images:
        raise SettingError(
            "policy",
            f"the observations are {_shown(space)}, no images (uint8 from 0 to 255, three dimensions; with "
            "policy_kwargs normalize_images=False any three dimensions); use 'MlpLstmPolicy'",
        )
    for image in images:
        if min((image.shape or (0,))[1:]) < SMALLEST_IMAGE:
            raise SettingError(
                "policy",
                f"images of shape {image.shape} are too small for NatureCNN, which needs {SMALLEST_IMAGE} pixels each "
                "way; enlarge them, or give policy_kwargs a features_extractor_class",
            )


def _takes_normalized(policy_kwargs: Mapping[str, Any]) -> bool:
    options = policy_kwargs.get("features_extractor_kwargs", {})
    return bool(options.get("normalized_image", False)) or not policy_kwargs.get("normalize_images", True)


def _offset(space: spaces.Discrete[Any] | spaces.MultiDiscrete[Any]) -> bool:
    return bool(np.any(space.start))


def _shown(space: spaces.Space[Any]) -> str:
    text = " ".join(repr(space).split())
    return text if len(text) <= 120 else f"a {type(space).__name__}"
