"""Saves a running training in one file, and loads the model that continues it from there."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from copy import deepcopy
from traceback import walk_tb
from types import FrameType
from typing import Any, Final
from weakref import WeakKeyDictionary

import gymnasium as gym
import torch
from sb3_contrib import QRDQN, TQC, TRPO, MaskablePPO, RecurrentPPO
from sb3_contrib.common.maskable.buffers import MaskableDictRolloutBuffer, MaskableRolloutBuffer
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common import buffers
from stable_baselines3.common.base_class import BaseAlgorithm, maybe_make_env
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.noise import VectorizedActionNoise
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
from stable_baselines3.common.type_aliases import GymEnv
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.her import HerReplayBuffer
from torch import nn

from rlcore.checkpoint import codec
from rlcore.checkpoint.container import MAX_BYTES, path_of, refusals_name, unusable
from rlcore.checkpoint.formats import (
    DEFAULT_ALGORITHM,
    constructor_names,
    decode_spaces,
    read_model_file,
    refusals_of,
    require_spaces_of,
    write_model_file,
)
from rlcore.envs import vec_state
from rlcore.envs.resumable import SupportsState
from rlcore.errors import CallOrderError, CheckpointError, StateError, quoted
from rlcore.ppo.algorithm import DistributionalPPO
from rlcore.ppo.saving import decoded
from rlcore.ppo.state_parts import resume_run
from rlcore.resume.parts import buffer_bytes, extra_names, training_state
from rlcore.resume.settings import LACKING, NOISES, decode_settings, encode_setting, setting, setting_names
from rlcore.resume.unsaved import acting, differences
from rlcore.state.network import quickly_drawn, require_network
from rlcore.state.progress import FORM, WINDOWS
from rlcore.state.training import Scope, apply_generators, capture_generators, generators_untouched, snapshot
from rlcore.state.tree import REMEDY, Rule, fit
from rlcore.types import StateDict, plain

ALGORITHMS: Final[dict[str, type[BaseAlgorithm]]] = {
    algorithm.__name__: algorithm
    for algorithm in (PPO, A2C, DQN, SAC, TD3, TRPO, RecurrentPPO, TQC, QRDQN, MaskablePPO)
}
"""The algorithms of Stable-Baselines3, by their names in files."""
_STOCK: Final = (*ALGORITHMS.values(), DistributionalPPO)
BUFFERS = (
    *(ReplayBuffer, DictReplayBuffer, NStepReplayBuffer, buffers.RolloutBuffer, buffers.DictRolloutBuffer),
    *(MaskableRolloutBuffer, MaskableDictRolloutBuffer, HerReplayBuffer),
)
_BY_THEMSELVES: Final = {
    *("env", "device", "seed", "start_time", "eval_env", "_vec_normalize_env", "n_envs"),
    *("_last_obs", "_last_original_obs", "_last_episode_starts", "_last_lstm_states", "_num_timesteps_at_start"),
    *("_logger", "_custom_logger", *FORM, *WINDOWS),
    *("pending_state", "_boundary", "_checked_obs"),
}
"""Attributes that have a part of their own in a file, or come from the caller."""

for _class in (*BUFFERS, RMSpropTFLike):
    codec.register_class(f"stable_baselines3.{_class.__name__}", _class)
for _name in ("Sigmoid", "Softplus", "Softsign", "SELU", "CELU", "ReLU6", "Hardtanh", "Hardswish", "LogSigmoid"):
    codec.register_class(f"torch.nn.{_name}", getattr(torch.nn, _name))
for _name in ("Adamax", "Adagrad", "Adadelta", "NAdam", "RAdam"):
    codec.register_class(f"torch.optim.{_name}", getattr(torch.optim, _name))


def save_exact(model: BaseAlgorithm, path: str | os.PathLike[str]) -> None:
    """Save a running training, so that :func:`load_exact` continues it bit by bit as if it had not been interrupted.

    The file holds settings, networks, optimizers, replay buffer, action noise, counters, the state of every environment
    and all random generators. It has a digest and is written whole or not at all.

    :param model: a DistributionalPPO, whose file is that of its ``save()``, or a PPO, A2C, DQN, SAC, TD3, TRPO,
        RecurrentPPO, TQC, QRDQN or MaskablePPO; its environments are wrapped in :class:`rlcore.ResumableEnv` or
        implement ``get_state`` and ``set_state``. Of a subclass, the file holds what its constructor takes, as the
        attributes of the same names have it, and the attributes that its ``extra_state`` names, such as
        ``extra_state = ("predictor", "predictor_optimizer", "intrinsic_mean")``: modules, optimizers, arrays, tensors,
        numbers, plain values, RunningMeanStd, and what has ``get_state`` and ``set_state``; NumPy's generators too,
        but no file has what ``spawn()`` continues from, so do not call it. A function or class of yours among the
        settings, such as a schedule, is given again to :func:`load_exact`, as ``custom_objects``
    :param path: ``.zip`` is added to a name without ending
    :raises CheckpointError: no file could hold a part of the training, which the message names: whatever differs from
        the model that :func:`load_exact` would build, such as a hook, or what it would refuse, such as NaN; or the file
        cannot be written. An older file is unchanged
    :raises CallOrderError: during a rollout, or after ``learn()`` ended in one. After an exception inside ``learn()``
        resume from the last file of :class:`SaveExactly`: outside of the ``except`` block save_exact cannot see an
        update that was left, or a rollout of an off-policy algorithm that was left between two steps
    """
    if not isinstance(model, DistributionalPPO) and model.env is not None and is_in_rollout(model):
        raise CallOrderError(
            "save_exact was called inside of a rollout, or after learn() ended in one, which cannot be continued in "
            "its middle; nothing was written. Pass callback=SaveExactly(...) to learn(), which saves between rollouts."
        )
    write_exact(model, path, capture_generators())


def is_running(model: object, method: str, frame: FrameType | None = None) -> bool:
    """Say whether ``method`` of ``model``, or of a parent class, is one of the calls that led here, or to ``frame``."""
    each: FrameType | None = frame or sys._getframe(1)
    while each is not None:
        if each.f_code.co_name == method and each.f_locals.get("self") is model:
            return True
        each = each.f_back
    return False


def write_exact(model: BaseAlgorithm, path: str | os.PathLike[str], global_generators: StateDict) -> None:
    """Do what :func:`save_exact` does, at the start of a rollout.

    :param global_generators: their states before the rollout drew its exploration noise
    """
    record = require_exact(model, path)
    if isinstance(model, DistributionalPPO):  # it remembers the generators itself
        model.save(path)  # type: ignore[arg-type]
        return
    record["state"]["generators"]["global"] = global_generators
    write_model_file(path, model, str(_name_of(type(model))), **record)


def require_exact(model: BaseAlgorithm, path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return settings and state of ``model`` for a file.

    :raises CheckpointError: ``model`` cannot be saved exactly, or a load would refuse the file; the message says why
    """
    if not isinstance(path, str | os.PathLike) or os.path.split(path)[1] in ("", ".", ".."):
        raise CheckpointError(quoted(path), "is no path of a file, as str or os.PathLike; give one")
    try:
        if (reason := next(_obstacles(model), None)) is None:
            settings = _encoded({name: setting(model, name) for name in setting_names(type(model))}, {})
            state: Any = training_state(model).capture(*Scope)
            reason = next(_unsaved(model, state), None)
    except (StateError, CheckpointError) as error:
        reason = getattr(error, "reason", str(error)).removesuffix(f"; {REMEDY}")
    if reason is not None:
        raise CheckpointError(path_of(path), f"was not written, as training could not continue exactly: {reason}")
    return {"settings": settings, "state": state, "seed": model.seed, "device": str(model.device)}


def load_exact(
    path: str | os.PathLike[str],
    env: GymEnv,
    *,
    algorithm: type[BaseAlgorithm] | None = None,
    custom_objects: Mapping[str, object] | None = None,
    device: str | None = None,
) -> BaseAlgorithm:
    """Return a model that continues the training of a file of :func:`save_exact`; nothing in the file is executed.

    Continue it with :func:`continue_learning`. Loading sets the global generators of Python, NumPy and torch. After an
    error ``env`` has to be reset, and the generators are unchanged.

    :param env: environments as they were built for the run, of the same number and in the same wrappers
    :param algorithm: the class that the file must be of; a subclass has to be given. None for one of the eleven
    :param custom_objects: by setting, what no file can hold: ``{"learning_rate": schedule, "policy": MyPolicy,
        "policy_kwargs.features_extractor_class": MyExtractor}``; and ``tensorboard_log``, which no file says
    :param device: None for the one that the run was on; training on another continues, but not to the same bits
    :raises CheckpointError: the file is damaged, is of another kind, or does not fit ``env`` or ``algorithm``
    """
    record = read_model_file(path, require_digest=True)
    name, objects = record["algorithm"], dict(custom_objects or {})
    found: Any = DistributionalPPO if name == DEFAULT_ALGORITHM else ALGORITHMS.get(name)
    if algorithm is not None and (
        _name_of(algorithm) == name or (found is DistributionalPPO and issubclass(algorithm, found))
    ):
        found = algorithm
    if found is None or algorithm not in (None, found):
        asked = None if algorithm is None else algorithm.__name__
        raise CheckpointError(
            path_of(path), f"is of {quoted(name)}, and algorithm={asked} is asked for; give its class"
        )
    load = _load_distributional if issubclass(found, DistributionalPPO) else _load_stock
    model = load(path, record, env, found, objects, device)
    parts = training_state(model).parts.values()
    keys = [part.key for part in parts if part.scope is Scope.RUN or part.key == "normalizer_state"]
    LOADED[model] = model.num_timesteps, {key: record["state"][key] for key in keys if record["state"].get(key)}
    return model


def _load_distributional(
    path: Any, record: Mapping[str, Any], env: GymEnv, found: Any, objects: dict[str, object], device: str | None
) -> BaseAlgorithm:
    loaded: Any = found._of_content(decoded(record, objects, path), path, env, device or "auto", {})
    with refusals_name(path):
        _require_env(loaded.env, record, objects)
        has_drawn = "rng_state" in loaded.pending_state
        reason = resume_run(loaded) if has_drawn else "the file has no state of the random generators"
        if reason is not None:
            raise StateError(f"training could not continue exactly: {reason}")
    loaded.pending_state.clear()
    return loaded  # type: ignore[no-any-return]


def _load_stock(
    path: Any, record: Mapping[str, Any], env: GymEnv, found: Any, objects: dict[str, object], device: str | None
) -> BaseAlgorithm:
    vec_env, before = found._wrap_env(maybe_make_env(env, 0)), capture_generators()
    try:
        with refusals_of(path, "the model", objects):
            fields = {name: record.get(name) for name in ("seed", "device")}
            fields = fit(fields, {"seed": 0, "device": ""}, "the file", {"seed": Rule(0, 2**64, optional=True)})
            _require_env(vec_env, record, objects)
            if torch.device(fields["device"]).type == "meta":
                raise StateError("device is 'meta', on which no model trains; the file is damaged")
            settings = decode_settings(record["settings"], found, objects, vec_env.num_envs)
            learnt: Any = record["state"].get("learnt")
            if isinstance(learnt, dict):  # else it is named below
                weights = learnt["state_dicts"]["policy"]
                require_network(settings, weights, lambda: _built(found, settings, vec_env, "cpu").policy)
            with quickly_drawn(found, settings):
                model = _built(found, settings, vec_env, device or fields["device"])
            model.seed = fields["seed"]
            training = training_state(model)
            training.restore(record["state"], expected=tuple(Scope), undoes=False)
            training.resume()
            model._num_timesteps_at_start = model.num_timesteps
    except BaseException:
        apply_generators(before)
        raise
    return model


LOADED: Final[WeakKeyDictionary[BaseAlgorithm, tuple[int, StateDict]]] = WeakKeyDictionary()
"""Of loaded models: the timestep of the file, and from where its run goes on."""


def _built(algorithm: type[BaseAlgorithm], settings: Mapping[str, Any], env: Any, device: str) -> BaseAlgorithm:
    """Return a new model; without a seed, which would seed the environments and the global generators."""
    made: Any = algorithm
    # The policy_kwargs of A2C name the optimizer already, which this would choose.
    more: dict[str, Any] = {"use_rms_prop": False} if issubclass(algorithm, A2C) else {}
    taken = {"device": device, "seed": None}.items()
    more |= {name: value for name, value in taken if name in constructor_names(algorithm)}
    model: BaseAlgorithm = made(env=env, **settings, **more)
    return model


def _unsaved(model: BaseAlgorithm, state: Mapping[str, Any]) -> Iterator[str]:
    """Yield what of ``model`` no file of its settings and this state holds; StateError says what no load takes."""
    advice = "let the constructor make it so, or make it a buffer of a module"
    built, mine, theirs = _both(model)
    optimizers, variables = model._get_torch_save_params()
    held = {*optimizers, *variables, *(f"policy.{name}" for name in optimizers)}
    held |= {f"action_noise{place}.noise_prev" for place in ("", *(f"._noises[{i}]" for i in range(model.n_envs)))}
    if not isinstance(model, DistributionalPPO):
        held |= {name for name in extra_names(model) if isinstance(mine.get(name), nn.Module | torch.optim.Optimizer)}
    if _is_own(model):
        place = "_state_parts" if isinstance(model, DistributionalPPO) else "extra_state"
        advice += f", or name it in {type(model).__name__}.{place}"
    with acting(model.policy), acting(built.policy):
        for path, text, expected in differences(mine, theirs, held, (model, built)):
            remedy = "set it as FloatSchedule(...)" if expected == "a FloatSchedule" else advice
            yield f"{path} is {text}, and of a model that is loaded it would be {expected}; {remedy}"
    shared = {"replay_buffer", "environments", "generators", "normalizer_state", "env_state", "lstm_state", "rng_state"}
    own, new = training_state(model).parts, training_state(built).parts
    vec_state.require_restorable(model.env)  # type: ignore[arg-type]
    with generators_untouched():
        for key in (key for key, each in state.items() if each is not None):
            with unusable(key):
                own[key].check(state[key])
                if key not in shared:
                    new[key].restore(snapshot(state[key]))  # type: ignore[arg-type]


def _encoded(settings: Mapping[str, Any], left_out: dict[str, object]) -> StateDict:
    """Return settings for a file, and what a load has to be given for it in ``left_out``."""
    encoded: StateDict = {name: encode_setting(name, value, left_out) for name, value in settings.items()}
    if "tensorboard_log" in settings:  # a path of this machine
        encoded["tensorboard_log"], left_out["tensorboard_log"] = None, settings["tensorboard_log"]
    return encoded


def _both(model: BaseAlgorithm) -> tuple[BaseAlgorithm, dict[str, Any], dict[str, Any]]:
    """Return a new model of the same settings, as a file has them, and what is to be equal in both, by name."""
    settings = {name: setting(model, name) for name in setting_names(type(model))}
    smaller = {name: size for name, size in {"buffer_size": model.n_envs, "verbose": 0}.items() if name in settings}
    environments = {id(each): each for each in settings.values() if isinstance(each, VecEnv | gym.Env)}
    state = training_state(model)
    scopes = [Scope.RUN] if type(model) not in _STOCK else []  # whose constructor may use the environments
    before = state.capture(*scopes)
    with torch.enable_grad(), generators_untouched(), unusable("a model of copies of the same settings"):
        made = deepcopy(settings, environments)
        if not isinstance(model, DistributionalPPO):
            given: dict[str, object] = {}
            made = decode_settings(_encoded(made, given), type(model), given, model.n_envs)
        built = _built(type(model), {**made, **smaller}, model.env, "cpu")
        for key in state.parts.keys() & {"extra", "action_noise"}:
            if (found := state.parts[key].capture()) is not None:
                training_state(built).parts[key].restore(snapshot(found))  # type: ignore[arg-type]
        if any(differences(before, state.capture(*scopes))):
            for key in (key for key, each in before.items() if each is not None):
                state.parts[key].restore(before[key])  # type: ignore[arg-type]
    named = settings.keys() - {"policy"}  # by which name a model has its network
    kept = {name: each for name, each in vars(model).items() if name not in named | _BY_THEMSELVES}
    if not _is_own(model):
        kept = {name: each for name, each in kept.items() if name in vars(built) or hasattr(type(model), name)}
    theirs = {name: each for name, each in vars(built).items() if name in kept}
    for name in named - set(smaller):
        kept[name], theirs[name] = map(plain, (settings[name], setting(built, name)))
    return built, kept, theirs


def _is_own(model: BaseAlgorithm) -> bool:
    """Return whether a class of the user's may have attributes that no part of a file is of."""
    parts = getattr(type(model), "_state_parts", DistributionalPPO._state_parts)
    return type(model) not in _STOCK and parts is DistributionalPPO._state_parts


def _require_env(env: Any, record: Mapping[str, Any], objects: Mapping[str, object]) -> None:
    """Raise StateError for other spaces or another number of environments, or for those that cannot take a state."""
    if (reason := _env_obstacle(env)) is not None:
        raise StateError(f"training could not continue exactly in this environment: {reason}")
    if env.num_envs != record["n_envs"]:
        raise StateError(f"the run had {record['n_envs']} environments, and this one has {env.num_envs}; give as many")
    require_spaces_of(decode_spaces(record, objects), env)


def _obstacles(model: BaseAlgorithm) -> Iterator[str]:
    """Yield the reasons why ``model`` cannot be saved exactly."""
    name = type(model).__name__
    if not isinstance(model, DistributionalPPO):  # whose registry names every part
        yield from _obstacles_of_parts(model, name)
    if unknown := [each for each in extra_names(model) if not hasattr(model, each)]:
        yield f"extra_state names {unknown[0]}, and {name} has no such attribute; correct it"
    if lacking := [each for each in setting_names(type(model)) if setting(model, each) is LACKING]:
        yield f"the constructor of {name} takes {lacking[0]}, and there is no attribute of this name; keep it as one"
    yield from filter(None, [_env_obstacle(model.env)])


def _obstacles_of_parts(model: BaseAlgorithm, name: str) -> Iterator[str]:
    if _name_of(type(model)) is None:
        yield f"{name} does not derive from an algorithm that can be saved: DistributionalPPO, {', '.join(ALGORITHMS)}"
    if type(model.policy) is not model.policy_class:
        yield f"the policy is a {type(model.policy).__name__}, and the algorithm built a {model.policy_class.__name__}"
    noise: Any = model.action_noise
    for kind in {*map(type, noise.noises if type(noise) is VectorizedActionNoise else [noise])}:
        if NOISES.get(kind.__name__, (type(None),))[0] is not kind and not issubclass(kind, SupportsState):
            yield f"the action noise {kind.__name__} cannot give its state; implement get_state and set_state"
    if model.n_envs > 1 and noise is not None and not hasattr(noise, "noises") and is_running(model, "learn"):
        yield f"the {name} trains with one action noise for all environments; give VectorizedActionNoise(noise, n_envs)"
    replay = getattr(model, "replay_buffer", None)
    for buffer in (getattr(model, "rollout_buffer_class", None), None if replay is None else type(replay)):
        if buffer is not None and buffer not in BUFFERS:
            yield f"the buffer {buffer.__name__} may keep more than transitions; use one of Stable-Baselines3"
    if replay is not None:
        yield from _obstacles_of_replay(model, replay)


def _obstacles_of_replay(model: Any, replay: ReplayBuffer) -> Iterator[str]:
    if (rows := replay.buffer_size) != max(model.buffer_size // model.n_envs, 1):
        words = f"buffer_size={model.buffer_size} is not that of the replay buffer"
        yield f"{words}; set model.buffer_size={rows * model.n_envs}"
    if (size := buffer_bytes(replay, int(model._total_timesteps) // model.n_envs)) > MAX_BYTES:
        words = f"at the end of this training the replay buffer takes {size >> 20} MiB"
        yield f"{words}, and a file at most {MAX_BYTES >> 20}; give a smaller buffer_size"
    if getattr(replay, "copy_info_dict", False):
        yield "the replay buffer keeps info dicts, which no file can hold; make it with copy_info_dict=False"


def is_in_rollout(model: Any) -> bool:
    """Return whether ``learn()`` is, or has ended, inside of a rollout, as far as this can be seen from outside."""
    if isinstance(model, DistributionalPPO):  # which remembers where the rollout began
        return model._boundary is not None
    others = [frame for thread, frame in sys._current_frames().items() if thread != threading.get_ident()]
    others += [frame for frame, _ in walk_tb(sys.exc_info()[2])]  # of the exception that is being handled
    base, steps = getattr(model.env, "unwrapped", None), model.num_timesteps
    is_stepping = getattr(base, "waiting", False) or any(vars(e).get("is_stepping") for e in getattr(base, "envs", ()))
    is_inside = is_running(model, "collect_rollouts") or any(is_running(model, "learn", each) for each in others)
    has_begun = steps != model._num_timesteps_at_start and model._last_obs is not None
    is_partial = has_begun and hasattr(model, "rollout_buffer") and not model.rollout_buffer.full
    is_behind = has_begun and model._current_progress_remaining != 1.0 - steps / model._total_timesteps
    return bool(is_inside or is_stepping or is_partial or is_behind)


def _env_obstacle(env: VecEnv | None) -> str | None:
    return "the model has no environment; call set_env first" if env is None else vec_state.unsupported_reason(env)


def _name_of(algorithm: type) -> str | None:
    """Return the name of a class in files, with that of the algorithm that it derives from; None without one."""
    for base in algorithm.__mro__:
        if base in ALGORITHMS.values():
            return base.__name__ if base is algorithm else f"{base.__name__}:{algorithm.__name__}"
    return None
