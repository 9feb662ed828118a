"""What a model was built with, as plain values of a file and back."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import torch
from sb3_contrib.common.maskable.buffers import MaskableDictRolloutBuffer, MaskableRolloutBuffer
from stable_baselines3 import A2C
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import (
    DictReplayBuffer,
    DictRolloutBuffer,
    NStepReplayBuffer,
    ReplayBuffer,
    RolloutBuffer,
)
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
from stable_baselines3.common.vec_env import VecEnv

from rlcore.checkpoint import codec
from rlcore.errors import StateError, reject_unknown
from rlcore.resume.algorithms import attribute_of, setting_names
from rlcore.resume.noise import decode_noise, encode_noise
from rlcore.state.model_file import CustomObjects as AskedFor
from rlcore.types import StateDict, StateValue

REPLAY_BUFFERS = (ReplayBuffer, DictReplayBuffer, NStepReplayBuffer)
ROLLOUT_BUFFERS = (RolloutBuffer, DictRolloutBuffer, MaskableRolloutBuffer, MaskableDictRolloutBuffer)

for _class in (*REPLAY_BUFFERS, *ROLLOUT_BUFFERS, RMSpropTFLike):
    codec.register_class(f"stable_baselines3.{_class.__name__}", _class)
for _name in ("Sigmoid", "Softplus", "Softsign", "SELU", "CELU", "ReLU6", "Hardtanh", "Hardswish", "LogSigmoid"):
    codec.register_class(f"torch.nn.{_name}", getattr(torch.nn, _name))
for _name in ("Adamax", "Adagrad", "Adadelta", "NAdam", "RAdam"):
    codec.register_class(f"torch.optim.{_name}", getattr(torch.optim, _name))


def encode_settings(model: BaseAlgorithm) -> StateDict:
    """Return the settings of ``model`` by the names of its constructor's parameters.

    What no file can hold (a lambda, a class of the user) leaves a placeholder, so that loading asks for it. ``policy``
    is an alias as ``"MlpPolicy"``, or a placeholder.
    """
    encoded: StateDict = {name: _encode(model, name) for name in setting_names(type(model))}
    aliases = {cls: alias for alias, cls in reversed(model.policy_aliases.items())}
    policy: object = aliases.get(model.policy_class, model.policy_class)
    return {"policy": codec.encode(policy, "policy"), **encoded}


def decode_settings(
    saved: Mapping[Any, Any], algorithm: type[BaseAlgorithm], custom_objects: Mapping[str, object]
) -> dict[str, Any]:
    """Return the arguments for the constructor of ``algorithm``, without environment, device and seed.

    :param saved: what :func:`encode_settings` returned
    :param custom_objects: objects by setting, ``policy_kwargs.features_extractor_class`` for a part of one
    :raises CheckpointError: a placeholder without its custom object
    :raises StateError: settings are missing, or are not known
    :raises UnknownSettingError: the file has no field for a custom object
    """
    names = {"policy", *setting_names(algorithm)}
    if set(saved) != names:
        others = sorted(map(str, names ^ set(saved)))
        raise StateError(
            f"has other settings than {algorithm.__name__} of the installed version: {others}; load it with the "
            "version that saved it"
        )
    asked_for = AskedFor(custom_objects)
    decoded = {
        name: decode_noise(value, asked_for) if name == "action_noise" else codec.decode(value, name, asked_for)
        for name, value in saved.items()
    }
    reject_unknown(custom_objects, "custom_objects", {"custom_objects": sorted(asked_for.names)})
    # Its policy_kwargs name the optimizer already, which these two would choose.
    return {**decoded, "use_rms_prop": False} if algorithm is A2C else decoded


def build(
    algorithm: type[BaseAlgorithm], env: VecEnv, settings: Mapping[str, Any], device: str, seed: int | None
) -> BaseAlgorithm:
    """Return a new model, without seeding anything: the constructor would seed ``env`` and the global generators."""
    make: Any = algorithm
    model: BaseAlgorithm = make(env=env, device=device, seed=None, **settings)
    model.seed = seed
    return model


def chosen_replay_buffer(model: OffPolicyAlgorithm) -> type[ReplayBuffer]:
    """Return the class of replay buffer that Stable-Baselines3 chooses if the user gives none."""
    if hasattr(model.observation_space, "spaces") and isinstance(model.observation_space.spaces, dict):
        return DictReplayBuffer
    return NStepReplayBuffer if model.n_steps > 1 else ReplayBuffer


def _encode(model: BaseAlgorithm, name: str) -> StateValue:
    value: Any = getattr(model, attribute_of(name))
    if name == "action_noise":
        return encode_noise(value)
    if name == "train_freq":
        frequency, unit = value
        value = (frequency, unit.value if isinstance(unit, Enum) else unit)
    if name == "replay_buffer_class":
        assert isinstance(model, OffPolicyAlgorithm)
        value = None if value is chosen_replay_buffer(model) else value  # given, it would be warned of with n_steps
    return codec.encode(value, name)
