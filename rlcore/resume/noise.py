"""Action noise as plain values: what it was built with, and where its process is."""

from __future__ import annotations

from typing import Any

import numpy as np
from stable_baselines3.common.noise import (
    ActionNoise,
    NormalActionNoise,
    OrnsteinUhlenbeckActionNoise,
    VectorizedActionNoise,
)

from rlcore.checkpoint import codec
from rlcore.envs import SupportsState
from rlcore.errors import StateError
from rlcore.state.position import from_state, to_state
from rlcore.state.schema import describe, read_dict, read_list, read_record
from rlcore.types import StateDict, StateValue

_ARGUMENTS: dict[type[ActionNoise], dict[str, str]] = {
    NormalActionNoise: {"mean": "_mu", "sigma": "_sigma"},
    OrnsteinUhlenbeckActionNoise: {
        "mean": "_mu",
        "sigma": "_sigma",
        "theta": "_theta",
        "dt": "_dt",
        "initial_noise": "initial_noise",
    },
}
"""Constructor parameter -> attribute, of exact types."""

_CLASSES = {cls.__name__: cls for cls in _ARGUMENTS}
_SETTING = "action_noise"


def noise_obstacle(noise: Any) -> str | None:
    """Return why the state of ``noise`` (an ActionNoise or None) cannot be saved, or None if it can."""
    if type(noise) is VectorizedActionNoise:
        return next(filter(None, map(noise_obstacle, noise.noises)), None)
    if noise is None or type(noise) in _ARGUMENTS or isinstance(noise, SupportsState):
        return None
    return f"the action noise {type(noise).__name__} cannot give its state; implement get_state and set_state in it"


def encode_noise(noise: Any) -> StateValue:
    """Return how to build ``noise``; of a class that is not Stable-Baselines3's a placeholder."""
    if type(noise) is VectorizedActionNoise:
        return {"class": "VectorizedActionNoise", "n_envs": noise.n_envs, "base_noise": encode_noise(noise.base_noise)}
    arguments = _ARGUMENTS.get(type(noise))
    if arguments is None:
        return codec.encode(noise, _SETTING)
    encoded: StateDict = {name: codec.encode(getattr(noise, attribute), name) for name, attribute in arguments.items()}
    return {"class": type(noise).__name__, "dtype": np.dtype(noise._dtype).name, "arguments": encoded}


def decode_noise(value: StateValue, custom_objects: Any) -> Any:
    """Return new noise as :func:`encode_noise` has described it.

    :param custom_objects: ``action_noise`` replaces that of the file, for one environment
    :raises CheckpointError: a placeholder without its custom object
    :raises StateError: a description of another form
    """
    name = value.get("class") if isinstance(value, dict) else None
    if name == "VectorizedActionNoise":
        fields = read_record(value, _SETTING, ("class", "n_envs", "base_noise"))
        return VectorizedActionNoise(decode_noise(fields["base_noise"], custom_objects), fields["n_envs"])
    if name is None or _SETTING in custom_objects:
        return codec.decode(value, _SETTING, custom_objects)
    if not isinstance(name, str) or name not in _CLASSES:
        raise StateError(f"action_noise is of the unknown class {describe(name)}; the file is damaged")
    kind: Any = _CLASSES[name]
    fields = read_record(value, _SETTING, ("class", "dtype", "arguments"))
    arguments = read_record(fields["arguments"], _SETTING, _ARGUMENTS[kind])
    decoded = {key: codec.decode(entry, key, {}) for key, entry in arguments.items()}
    return kind(**decoded, dtype=np.dtype(fields["dtype"]).type)


def capture_noise(noise: Any) -> StateDict | None:
    """Return where the process of ``noise`` is: the previous noise of Ornstein-Uhlenbeck, for each environment."""
    if isinstance(noise, SupportsState):
        return noise.get_state()
    if isinstance(noise, VectorizedActionNoise):
        return {"noises": [capture_noise(each) for each in noise.noises]}
    if isinstance(noise, OrnsteinUhlenbeckActionNoise):
        return {"previous": to_state(np.array(noise.noise_prev))}
    return None


def restore_noise(noise: Any, state: StateDict | None) -> None:
    """Continue the process of ``noise`` where :func:`capture_noise` was called.

    :raises StateError: ``state`` is of another kind of noise
    """
    if isinstance(noise, SupportsState):
        noise.set_state(read_dict(state, _SETTING))
    elif isinstance(noise, VectorizedActionNoise):
        states: list[Any] = read_list(read_record(state, _SETTING, ["noises"])["noises"], _SETTING, noise.n_envs)
        for each, its_state in zip(noise.noises, states, strict=True):
            restore_noise(each, its_state)
    elif isinstance(noise, OrnsteinUhlenbeckActionNoise):
        previous = from_state(read_record(state, _SETTING, ["previous"])["previous"])
        if np.shape(previous) != np.shape(noise._mu):
            raise StateError(
                f"the previous action noise has shape {np.shape(previous)}, expected {np.shape(noise._mu)}"
            )
        noise.noise_prev = previous
    elif state is not None:
        raise StateError(f"the file has a state of action noise, and {type(noise).__name__} has none")
