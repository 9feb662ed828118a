"""The algorithms that are saved exactly, what they were built with as plain values, and what keeps one from it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final

import numpy as np
import torch
from sb3_contrib import QRDQN, TQC, TRPO, MaskablePPO, RecurrentPPO
from sb3_contrib.common.maskable.buffers import MaskableDictRolloutBuffer, MaskableRolloutBuffer
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common import buffers
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.noise import (
    ActionNoise,
    NormalActionNoise,
    OrnsteinUhlenbeckActionNoise,
    VectorizedActionNoise,
)
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.save_util import recursive_getattr
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
from stable_baselines3.common.utils import FloatSchedule, LinearSchedule
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.her import HerReplayBuffer

from rlcore.checkpoint import codec
from rlcore.checkpoint.storage import DEFAULT_MAX_BYTES
from rlcore.envs import SupportsState, vec_state
from rlcore.errors import StateError
from rlcore.ppo.algorithm import DistributionalPPO
from rlcore.resume.parts import filled_rows
from rlcore.state.model_file import CustomObjects
from rlcore.state.tree import FREE, describe, fit
from rlcore.types import StateDict, StateValue

ALGORITHMS: Final[dict[str, type[BaseAlgorithm]]] = {
    algorithm.__name__: algorithm
    for algorithm in (PPO, A2C, DQN, SAC, TD3, TRPO, RecurrentPPO, TQC, QRDQN, MaskablePPO)
}
"""Exact types, by their names in files: a subclass may keep more than its parent, so it is refused."""
REPLAY_BUFFERS = (ReplayBuffer, DictReplayBuffer, NStepReplayBuffer)
ROLLOUT_BUFFERS = (
    *(buffers.RolloutBuffer, buffers.DictRolloutBuffer),
    *(MaskableRolloutBuffer, MaskableDictRolloutBuffer),
)
NOISES: Final[dict[str, tuple[type[ActionNoise], dict[str, str]]]] = {
    "NormalActionNoise": (NormalActionNoise, {"mean": "_mu", "sigma": "_sigma"}),
    "OrnsteinUhlenbeckActionNoise": (
        OrnsteinUhlenbeckActionNoise,
        {"mean": "_mu", "sigma": "_sigma", "theta": "_theta", "dt": "_dt", "initial_noise": "initial_noise"},
    ),
}
"""Exact types, and their attributes by parameter of the constructor."""

_NOT_READ: Final = frozenset({"policy", "env", "seed", "device", "_init_setup_model"})
_A2C_OPTIMIZER: Final = frozenset({"use_rms_prop", "rms_prop_eps"})  # A2C keeps their effect in policy_kwargs
_REBUILT: Final = frozenset(
    {
        *("policy", "policy_class", "env", "device", "observation_space", "action_space", "n_envs", "lr_schedule"),
        *("_vec_normalize_env", "rollout_buffer", "rollout_buffer_class", "rollout_buffer_kwargs", "action_noise"),
        *("use_sde", "sde_sample_freq", "use_sde_at_warmup", "ent_coef", "vf_coef", "max_grad_norm"),
        *("q_net", "q_net_target", "quantile_net", "quantile_net_target", "n_quantiles", "exploration_schedule"),
        *("actor", "actor_target", "critic", "critic_target", "batch_norm_stats", "batch_norm_stats_target"),
        *("actor_batch_norm_stats", "actor_batch_norm_stats_target"),
        *("critic_batch_norm_stats", "critic_batch_norm_stats_target"),
    }
)
"""Attributes that the constructor makes from the settings and the environment."""
_SAVED: Final = frozenset(
    {
        *("num_timesteps", "_total_timesteps", "_episode_num", "_n_updates", "_current_progress_remaining"),
        *("_n_calls", "exploration_rate", "ep_info_buffer", "ep_success_buffer", "replay_buffer", "seed"),
        *("_last_obs", "_last_original_obs", "_last_episode_starts", "_last_lstm_states", "_logger"),
        *("log_ent_coef", "ent_coef_tensor", "ent_coef_optimizer"),
    }
)
"""Attributes that a file holds."""
_OF_THE_CALL: Final = frozenset({"start_time", "_num_timesteps_at_start", "_custom_logger"})
"""Attributes that say how the present process trains: clocks, and who made the logger."""

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
    encoded: StateDict = {name: _encode(model, name) for name in _setting_names(type(model))}
    aliases = {cls: alias for alias, cls in reversed(model.policy_aliases.items())}
    policy: object = aliases.get(model.policy_class, model.policy_class)
    return {"policy": codec.encode(policy, "policy"), **encoded}


def decode_settings(
    saved: Mapping[Any, Any], algorithm: type[BaseAlgorithm], custom_objects: Mapping[str, object]
) -> dict[str, Any]:
    """Return the arguments for the constructor of ``algorithm``, without environment, device and seed.

    :param saved: of :func:`encode_settings`
    :param custom_objects: objects by setting, ``policy_kwargs.features_extractor_class`` for a part of one
    :raises CheckpointError: a placeholder without its custom object
    :raises StateError: settings are missing, or are not known
    :raises UnknownSettingError: the file has no field for a custom object
    """
    names = {"policy", *_setting_names(algorithm)}
    if set(saved) != names:
        others = sorted(map(str, names ^ set(saved)))
        raise StateError(
            f"has other settings than {algorithm.__name__} of the installed version: {others}; load it with the "
            "version that saved it"
        )
    objects = CustomObjects(custom_objects)
    decoded = {
        name: _decode_noise(value, objects) if name == "action_noise" else codec.decode(value, name, objects)
        for name, value in saved.items()
    }
    objects.require_used()
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


def obstacle(model: BaseAlgorithm) -> str | None:
    """Return the first reason why ``model`` cannot be saved exactly, or None if it can."""
    if isinstance(model, DistributionalPPO):  # whose registry names every part, those of a subclass too
        return env_obstacle(model.env)
    name = type(model).__name__
    if type(model) in ALGORITHMS.values():
        return next(_obstacles(model), None)
    if isinstance(model, tuple(ALGORITHMS.values())):
        return f"{name} is a subclass and may keep more than its parent; only the class itself can be saved exactly"
    return f"{name} cannot be saved exactly; the algorithms that can are DistributionalPPO, {', '.join(ALGORITHMS)}"


def env_obstacle(env: VecEnv | None) -> str | None:
    """Return why the state of ``env`` cannot be saved, or None if it can."""
    return "the model has no environment; call set_env first" if env is None else vec_state.unsupported_reason(env)


def _obstacles(model: BaseAlgorithm) -> Iterator[str]:
    known = _REBUILT | _SAVED | _OF_THE_CALL | {_attribute_of(name) for name in _setting_names(type(model))}
    if unknown := sorted(set(vars(model)) - known):
        yield f"the attribute {unknown[0]!r} is not one of {type(model).__name__}; remove it before saving"
    if type(model.policy) is not model.policy_class:
        yield (
            f"the policy is a {type(model.policy).__name__} and was built as a {model.policy_class.__name__}; "
            "train with the policy that the algorithm has built (a compiled one computes other bits)"
        )
    for name in model._get_torch_save_params()[0]:
        optimizer, expected = recursive_getattr(model, name), model.policy.optimizer_class
        own = name == "ent_coef_optimizer"  # which is always Adam
        if isinstance(optimizer, torch.optim.Optimizer) and not own and type(optimizer) is not expected:
            yield (
                f"{name} is a {type(optimizer).__name__}, and the policy was built with {expected.__name__}; give the "
                "class as policy_kwargs['optimizer_class']"
            )
    schedules: dict[str, object] = {"lr_schedule": FloatSchedule(model.learning_rate)}
    if hasattr(model, "exploration_schedule"):
        names = ("exploration_initial_eps", "exploration_final_eps", "exploration_fraction")
        schedules["exploration_schedule"] = LinearSchedule(*(getattr(model, name) for name in names))
    for name, schedule in schedules.items():
        if not codec.same(codec.encode(getattr(model, name), name), codec.encode(schedule, name)):
            yield f"{name} was replaced after the model was built, so its settings do not give it; set the setting too"
    yield from _noise_obstacles(model.action_noise)
    yield from _buffer_obstacles(model)
    if reason := env_obstacle(model.env):
        yield reason


def _noise_obstacles(noise: Any) -> Iterator[str]:
    name = type(noise).__name__
    if type(noise) is VectorizedActionNoise:
        for each in noise.noises:
            yield from _noise_obstacles(each)
    elif noise is not None and name not in NOISES and not isinstance(noise, SupportsState):
        yield f"the action noise {name} cannot give its state; implement get_state and set_state in it"


def _buffer_obstacles(model: BaseAlgorithm) -> Iterator[str]:
    rollouts = getattr(model, "rollout_buffer_class", None)
    if rollouts is not None and rollouts not in ROLLOUT_BUFFERS:
        yield f"the rollout buffer {rollouts.__name__} may keep more than a rollout; use Stable-Baselines3's own"
    buffer = getattr(model, "replay_buffer", None)
    if buffer is None:
        return
    if isinstance(buffer, HerReplayBuffer):
        yield "HerReplayBuffer computes rewards with the environment and keeps episodes apart, which is not covered"
    elif type(buffer) not in REPLAY_BUFFERS:
        yield f"the replay buffer {type(buffer).__name__} may keep more than transitions; use Stable-Baselines3's own"
    else:
        parts = filled_rows(buffer, buffer.pos, buffer.full).values()
        size = sum(each.nbytes for part in parts for each in (part.values() if isinstance(part, dict) else [part]))
        if size > DEFAULT_MAX_BYTES:
            yield (
                f"the replay buffer holds {size} bytes of transitions, and a file at most {DEFAULT_MAX_BYTES}; use a "
                f"smaller buffer_size than {buffer.buffer_size}"
            )


def _setting_names(algorithm: type[BaseAlgorithm]) -> list[str]:
    """Return the parameters of the constructor of ``algorithm`` whose values a model keeps as attributes."""
    left_out = _NOT_READ | _A2C_OPTIMIZER
    return [name for name in inspect.signature(algorithm).parameters if name not in left_out]


def _attribute_of(setting: str) -> str:
    return "_stats_window_size" if setting == "stats_window_size" else setting


def _encode(model: BaseAlgorithm, name: str) -> StateValue:
    value: Any = getattr(model, _attribute_of(name))
    if name == "action_noise":
        return _encode_noise(value)
    if name == "train_freq":
        frequency, unit = value
        value = (frequency, unit.value if isinstance(unit, Enum) else unit)
    if name == "replay_buffer_class":
        assert isinstance(model, OffPolicyAlgorithm)
        is_dict = isinstance(getattr(model.observation_space, "spaces", None), dict)
        chosen = DictReplayBuffer if is_dict else NStepReplayBuffer if model.n_steps > 1 else ReplayBuffer
        value = None if value is chosen else value  # given, it would be warned of with n_steps
    return codec.encode(value, name)


def _encode_noise(noise: Any) -> StateValue:
    """Return how to build ``noise``; of a class that is not Stable-Baselines3's a placeholder."""
    name = type(noise).__name__
    if type(noise) is VectorizedActionNoise:
        return {"class": name, "n_envs": noise.n_envs, "base_noise": _encode_noise(noise.base_noise)}
    kind, attributes = NOISES.get(name, (None, {}))
    if type(noise) is not kind:
        return codec.encode(noise, "action_noise")
    made: Any = noise
    arguments: StateDict = {key: codec.encode(getattr(made, each), key) for key, each in attributes.items()}
    return {"class": name, "dtype": np.dtype(made._dtype).name, "arguments": arguments}


def _decode_noise(value: Any, objects: CustomObjects) -> Any:
    """Return new noise; ``action_noise`` of the custom objects replaces that of the file, for one environment."""
    name = value.get("class") if isinstance(value, dict) else None
    if name == "VectorizedActionNoise":
        fields = fit(value, {"class": name, "n_envs": 0, "base_noise": None}, "action_noise", {"base_noise": FREE})
        return VectorizedActionNoise(_decode_noise(fields["base_noise"], objects), fields["n_envs"])
    if name is None or "action_noise" in objects:
        return codec.decode(value, "action_noise", objects)
    if not isinstance(name, str) or name not in NOISES:
        raise StateError(f"action_noise is of the unknown class {describe(name)}; the file is damaged")
    made: Any = NOISES[name][0]
    like = {"class": name, "dtype": "", "arguments": dict.fromkeys(NOISES[name][1])}
    fields = fit(value, like, "action_noise", dict.fromkeys(NOISES[name][1], FREE))
    decoded = {key: codec.decode(entry, key, {}) for key, entry in fields["arguments"].items()}
    return made(**decoded, dtype=np.dtype(fields["dtype"]).type)
