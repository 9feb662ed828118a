"""Which observation and action spaces a model takes: one table, and one refusal for all others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import CombinedExtractor, NatureCNN

from rlcore.errors import SettingError
from rlcore.ppo.configured import ConfiguredPPO

if TYPE_CHECKING:
    from rlcore.ppo.policy import DistributionalRecurrentPolicy

SMALLEST_IMAGE: Final = 36
"""Pixels that the three convolutions of Stable-Baselines3's NatureCNN need each way."""
SUPPORTED: Final = (
    "'MlpLstmPolicy' reads Box, Discrete, MultiDiscrete and MultiBinary, 'CnnLstmPolicy' images of at least "
    f"{SMALLEST_IMAGE} pixels each way (uint8, or any with policy_kwargs normalize_images=False), and "
    "'MultiInputLstmPolicy' one Dict of these; actions are a Box of floats with finite bounds, Discrete, MultiDiscrete "
    "or MultiBinary; Box and MultiBinary have at least one dimension, the other two count from 0 in at most one, and "
    "nothing is empty. Change the policy, or the space with a wrapper of gymnasium.wrappers"
)

_Table = Mapping[type[spaces.Space[Any]], Callable[[Any], bool]]


def _from_zero(space: Any) -> bool:
    return space.shape != (0,) and len(space.shape) <= 1 and not np.any(space.start)


def _has_numbers(space: Any) -> bool:
    return space.shape != () and 0 not in space.shape


OBSERVATIONS: Final[_Table] = {
    spaces.Box: lambda space: space.dtype.kind in "biuf" and space.dtype.itemsize <= 8 and _has_numbers(space),
    spaces.Discrete: _from_zero,
    spaces.MultiDiscrete: _from_zero,
    spaces.MultiBinary: _has_numbers,
}
ACTIONS: Final[_Table] = {
    spaces.Box: lambda space: space.dtype.kind == "f" and bool(space.low.size) and space.is_bounded(),
    spaces.Discrete: _from_zero,
    spaces.MultiDiscrete: _from_zero,
    spaces.MultiBinary: lambda space: isinstance(space.n, int) and space.n > 0,
}


def require_model(model: ConfiguredPPO) -> None:
    """Check the spaces of a model before its network is built.

    :raises SettingError: if its policy does not take them, or if it has none yet
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
    extractor = policy_class.extractor_for(policy_kwargs)
    options = policy_kwargs.get("features_extractor_kwargs", {})
    normalized = bool(options.get("normalized_image", False)) or not policy_kwargs.get("normalize_images", True)
    images = [each for each in _parts(observation_space) if is_image_space(each, normalized_image=normalized)]
    if (
        isinstance(observation_space, spaces.Dict) is not policy_class.takes_dict
        or (issubclass(extractor, NatureCNN) and not images)
        or (
            issubclass(extractor, NatureCNN | CombinedExtractor)
            and any(min((image.shape or (0,))[1:]) < SMALLEST_IMAGE for image in images)
        )
    ):
        raise _refusal("policy", f"the observations are {_shown(observation_space)}", policy_class.__name__)


def require_spaces(observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
    """
    :raises SettingError: for a space that no policy here takes
    """
    parts = _parts(observation_space)
    if not parts or not all(_is_in(OBSERVATIONS, part) for part in parts):
        raise _refusal("env", f"the observations are {_shown(observation_space)}", "a policy")
    if not _is_in(ACTIONS, action_space):
        raise _refusal("env", f"the actions are {_shown(action_space)}", "a policy")


def _parts(space: spaces.Space[Any]) -> list[spaces.Space[Any]]:
    return list(space.values()) if isinstance(space, spaces.Dict) else [space]


def _is_in(table: _Table, space: spaces.Space[Any]) -> bool:
    return any(isinstance(space, kind) and supports(space) for kind, supports in table.items())


def _refusal(setting: str, found: str, policy: str) -> SettingError:
    return SettingError(setting, f"{found}, which {policy} does not take: {SUPPORTED}")


def _shown(space: spaces.Space[Any]) -> str:
    text = " ".join(repr(space).split())
    return text if len(text) <= 120 else f"a {type(space).__name__}"
