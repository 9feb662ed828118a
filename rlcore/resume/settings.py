"""The settings of Stable-Baselines3's algorithms as a file has them, and the arguments that they give a constructor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from typing import Any, Final

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.noise import (
    ActionNoise,
    NormalActionNoise,
    OrnsteinUhlenbeckActionNoise,
    VectorizedActionNoise,
)
from stable_baselines3.common.utils import ConstantSchedule, LinearSchedule
from stable_baselines3.her import GoalSelectionStrategy

from rlcore.checkpoint import codec
from rlcore.checkpoint.formats import constructor_names
from rlcore.errors import StateError
from rlcore.state.tree import Rule, harmful_option, misfit
from rlcore.types import StateDict, StateValue, plain

NOISES: Final[dict[str, tuple[type[ActionNoise], dict[str, str]]]] = {
    "NormalActionNoise": (NormalActionNoise, {"mean": "_mu", "sigma": "_sigma"}),
    "OrnsteinUhlenbeckActionNoise": (
        OrnsteinUhlenbeckActionNoise,
        {"mean": "_mu", "sigma": "_sigma", "theta": "_theta", "dt": "_dt", "initial_noise": "initial_noise"},
    ),
}
"""Exact types, and their attributes by parameter of the constructor."""

_NO_SETTINGS: Final = {
    *("policy", "env", "seed", "device", "_init_setup_model"),
    *("use_rms_prop", "rms_prop_eps"),  # A2C keeps their effect in policy_kwargs
}

_UNIT: Final = Rule(0.0, 1.0)
_LIMITS: Final = {
    **dict.fromkeys(("gamma", "gae_lambda", "tau"), _UNIT),
    **dict.fromkeys(("learning_rate", "vf_coef"), Rule(0.0)),
    **dict.fromkeys(("clip_range", "clip_range_vf", "target_kl", "max_grad_norm"), Rule(0.0, finite=False)),
    **dict.fromkeys(("ent_coef", "target_entropy"), Rule(finite=False)),
}
"""Of settings of a file that are numbers, None or schedules; numbers in others may be anything but NaN."""
_AUTOMATIC: Final = ("ent_coef", "target_entropy")  # may also be texts, such as "auto"
LACKING: Final = object()
"""Stands for an attribute that a model does not have."""


def setting_names(algorithm: type[BaseAlgorithm]) -> list[str]:
    """Return the parameters of the constructors of ``algorithm`` whose values a file has."""
    return ["policy", *(name for name in constructor_names(algorithm) if name not in _NO_SETTINGS)]


def setting(model: BaseAlgorithm, name: str) -> Any:
    """Return the value that the constructor takes for what ``model`` has."""
    attribute = {"policy": "policy_class", "stats_window_size": "_stats_window_size"}.get(name, name)
    value: Any = getattr(model, attribute, LACKING)
    if name == "policy":  # by its alias, as "MlpPolicy"
        return {cls: alias for alias, cls in reversed(model.policy_aliases.items())}.get(value, value)
    if name == "train_freq":
        frequency, unit = value
        return frequency, unit.value if isinstance(unit, Enum) else unit
    if name == "replay_buffer_class":
        is_dict = isinstance(getattr(model.observation_space, "spaces", None), dict)
        chosen = (
            DictReplayBuffer if is_dict else NStepReplayBuffer if getattr(model, "n_steps", 1) > 1 else ReplayBuffer
        )
        return None if value is chosen else value  # given, it would be warned of with n_steps
    if name == "replay_buffer_kwargs":
        named = {key: each.name.lower() for key, each in value.items() if isinstance(each, GoalSelectionStrategy)}
        return {**value, **named}
    return dict(value) if name == "policy_kwargs" else value


def encode_setting(name: str, value: object, left_out: dict[str, object]) -> StateValue:
    """Return a setting as plain values; what no file can hold leaves a placeholder, so that loading asks for it.

    :param left_out: gets what loading asks for, by name
    """
    if name == "action_noise":
        return _encode_noise(value, left_out)
    return codec.encode(value, name, exact=True, left_out=left_out)


def decode_settings(
    saved: Mapping[Any, Any], algorithm: type[BaseAlgorithm], objects: Mapping[str, object], n_envs: int
) -> dict[str, Any]:
    """Return the arguments for the constructor of ``algorithm``, without environment, device and seed."""
    if others := set(setting_names(algorithm)) ^ set(saved):
        raise StateError(f"has other settings than the installed {algorithm.__name__}: {sorted(map(str, others))}")
    decoded: dict[str, Any] = {
        name: _decode_noise(each, objects, n_envs) if name == "action_noise" else codec.decode(each, name, objects)
        for name, each in saved.items()
    }
    of_buffers = [decoded.get(name) or {} for name in ("replay_buffer_kwargs", "rollout_buffer_kwargs")]
    for name, value in [pair for each in (decoded, *of_buffers) for pair in each.items()]:
        number = _number_of(value) if name in _AUTOMATIC and isinstance(value, str) else plain(value)
        numbers = [number] if type(number) in (int, float) else _ends_of(value)
        is_known = bool(numbers) or value is None or name in objects or name not in _LIMITS
        rule = _LIMITS.get(name, Rule(finite=False))
        if not is_known or not all(each == each and rule.allows(each) for each in numbers):
            raise misfit(name, f"a number{rule}", value)
    if harmful := harmful_option((decoded.get("policy_kwargs") or {}).get("optimizer_kwargs") or {}):
        where = f"policy_kwargs.optimizer_kwargs[{harmful!r}]"
        raise StateError(f"{where} would ascend the loss or give NaN; the file is damaged or hostile")
    if "tensorboard_log" in decoded:
        decoded["tensorboard_log"] = objects.get("tensorboard_log")
    return decoded


def _number_of(text: str) -> float:
    """Return the number of "auto_0.1" or "0.1", 0 for "auto"; NaN for another text."""
    with suppress(ValueError):
        return float(text.removeprefix("auto").removeprefix("_") or 0)
    return math.nan


def _ends_of(schedule: Any) -> list[float]:
    """Return the numbers that a schedule of Stable-Baselines3 goes between; an empty list for any other object."""
    inner = getattr(schedule, "value_schedule", schedule)
    own = vars(inner) if isinstance(inner, ConstantSchedule | LinearSchedule) else {}
    return [plain(own[name]) for name in ("val", "start", "end", "end_fraction") if name in own]


def _encode_noise(noise: Any, left_out: dict[str, object]) -> StateValue:
    """Return how to build ``noise``; of a class that is not Stable-Baselines3's a placeholder."""
    name = type(noise).__name__
    if type(noise) is VectorizedActionNoise:
        return {"class": name, "n_envs": noise.n_envs, "base_noise": _encode_noise(noise.base_noise, left_out)}
    kind, attributes = NOISES.get(name, (None, {}))
    if type(noise) is not kind:
        return codec.encode(noise, "action_noise", left_out=left_out)
    made: Any = noise
    arguments: StateDict = {key: codec.encode(getattr(made, each), key, exact=True) for key, each in attributes.items()}
    return {"class": name, "dtype": np.dtype(made._dtype).name, "arguments": arguments}


def _decode_noise(value: Any, objects: Mapping[str, object], n_envs: int) -> Any:
    """Return new noise; ``action_noise`` of the custom objects replaces that of the file, for one environment."""
    name = value.get("class") if isinstance(value, dict) else None
    if name == "VectorizedActionNoise":
        if value["base_noise"].get("class") == name:
            raise StateError("action_noise holds one VectorizedActionNoise in another; the file is damaged")
        return VectorizedActionNoise(_decode_noise(value["base_noise"], objects, n_envs), n_envs)
    if name is None or "action_noise" in objects:
        return codec.decode(value, "action_noise", objects)
    made: Any = NOISES[name][0]
    arguments: dict[str, Any] = {key: codec.decode(entry, key, {}) for key, entry in value["arguments"].items()}
    given = [each for each in arguments.values() if each is not None]
    if not all(isinstance(each, int | float | np.number | np.ndarray) and np.isfinite(each).all() for each in given):
        raise StateError("action_noise holds NaN or infinity; the file is damaged")
    return made(**arguments, dtype=np.dtype(value["dtype"]).type)
