"""The parts of a running training of Stable-Baselines3's algorithms, in the order in which they are restored."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np
import torch
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.noise import OrnsteinUhlenbeckActionNoise, VectorizedActionNoise
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.save_util import recursive_getattr
from stable_baselines3.her import HerReplayBuffer

from rlcore.checkpoint import codec
from rlcore.envs import vec_state
from rlcore.envs.resumable import SupportsState
from rlcore.errors import StateError
from rlcore.ppo.algorithm import DistributionalPPO
from rlcore.state.progress import capture_progress, restore_progress
from rlcore.state.training import (
    Scope,
    StatePart,
    TrainingState,
    apply_generators,
    capture_generators,
    capture_position,
    check_generators,
    fit_position,
    from_state,
    generator_from_state,
    generator_state,
    require_in_space,
    restore_position,
    to_state,
)
from rlcore.state.tree import FREE, Rule, fit, fit_optimizer, misfit
from rlcore.types import StateDict


def _capture_learnt(model: BaseAlgorithm) -> StateDict:
    """Return what updates change: the state dicts of ``model.get_parameters()``, and ``variables`` of SAC and TQC."""
    found: Any = {"state_dicts": model.get_parameters(), "variables": _variables(model)}
    return found  # type: ignore[no-any-return]


def _restore_learnt(model: BaseAlgorithm, state: StateDict) -> None:
    variables = _variables(model)
    own: Any = {name: recursive_getattr(model, name) for name in model._get_torch_save_params()[0]}
    like = {"state_dicts": dict.fromkeys(own), "variables": variables}
    fitted = fit(state, like, "learnt", dict.fromkeys(own, FREE))
    saved: Any = dict(fitted["state_dicts"])
    dtypes = [{each.dtype for each in weights.values()} for weights in (saved["policy"], model.policy.state_dict())]
    if dtypes[0] != dtypes[1]:
        texts = [" and ".join(sorted(map(str, each))) for each in dtypes]
        raise StateError(f"the weights are {texts[0]}, and a new model's {texts[1]}; set torch's default dtype again")
    for name, each in own.items():
        if isinstance(each, torch.optim.Optimizer):
            if type(model)._update_learning_rate is BaseAlgorithm._update_learning_rate:  # which replaces every rate
                for group in saved[name]["param_groups"]:  # schedules may go below 0 beyond their end
                    group["lr"] = max(group.get("lr", 0.0), 0.0)
            saved[name] = fit_optimizer(saved[name], each, name)
        else:
            saved[name] = fit(saved[name], each.state_dict(), f"learnt[{name!r}]")
    model.set_parameters(saved, exact_match=True, device=model.device)
    for name, variable in variables.items():
        variable.data.copy_(fitted["variables"][name])


def _variables(model: BaseAlgorithm) -> dict[str, torch.Tensor]:
    _, names = model._get_torch_save_params()
    return {name: recursive_getattr(model, name).detach() for name in names}


def _capture_buffer(model: BaseAlgorithm) -> StateDict | None:
    """Return the filled rows of every array, each of shape (rows, n_envs, ...); None without a replay buffer."""
    buffer = getattr(model, "replay_buffer", None)
    if buffer is None:
        return None
    arrays: Any = {name: to_state(value) for name, value in _filled_rows(buffer, buffer.pos, buffer.full).items()}
    return {"pos": int(buffer.pos), "full": bool(buffer.full), "arrays": arrays}


def _restore_buffer(model: BaseAlgorithm, state: StateDict) -> None:
    buffer = getattr(model, "replay_buffer", None)
    if buffer is None:
        raise StateError("the file has a replay buffer and the model has none; the file is damaged")
    record = fit(state, {"pos": 0, "full": False, "arrays": {}}, "replay_buffer", {"arrays": FREE})
    if record["pos"] >= buffer.buffer_size:
        raise misfit("replay_buffer['pos']", f"below the buffer's size, {buffer.buffer_size}", record["pos"])
    _fill(_filled_rows(buffer, record["pos"], record["full"]), from_state(record["arrays"]), "replay_buffer")
    _check_buffer(model, record)
    buffer.pos, buffer.full = record["pos"], record["full"]


def buffer_bytes(buffer: ReplayBuffer, steps: int) -> int:
    """Return the size of the arrays of a replay buffer after so many steps of all environments."""
    places = _filled_rows(buffer, min(steps, buffer.buffer_size), full=steps >= buffer.buffer_size).values()
    return sum(array.nbytes for each in places for array in (each.values() if isinstance(each, dict) else [each]))


def _filled_rows(buffer: ReplayBuffer, pos: int, full: bool) -> dict[str, Any]:
    """Return views of the rows of every array that hold transitions, by name; each is an array or a dict of arrays.

    With ``optimize_memory_usage`` one row more holds the next observation.
    """
    rows = buffer.buffer_size if full else min(pos + int(buffer.optimize_memory_usage), buffer.buffer_size)
    names = ["observations", "actions", "rewards", "dones", "timeouts"]
    names += ["next_observations"] * hasattr(buffer, "next_observations")
    names += ["ep_start", "ep_length"] * isinstance(buffer, HerReplayBuffer)
    found = {name: getattr(buffer, name) for name in names}
    whole = {"_current_ep_start": buffer._current_ep_start} if isinstance(buffer, HerReplayBuffer) else {}
    return whole | {
        name: {key: array[:rows] for key, array in value.items()} if isinstance(value, dict) else value[:rows]
        for name, value in found.items()
    }


def _fill(place: Any, value: Any, where: str) -> None:
    """Copy an array, or a dict of them, to its place; raise StateError for one of another form."""
    if isinstance(place, dict):
        for key, part in fit(value, place, where, dict.fromkeys(place, FREE)).items():
            _fill(place[key], part, f"{where}[{key!r}]")
    elif not isinstance(value, np.ndarray) or (value.shape, value.dtype) != (place.shape, place.dtype):
        raise misfit(where, f"an array of {place.dtype} with shape {place.shape}", value)
    else:
        place[...] = value


def _check_buffer(model: Any, state: StateDict) -> None:
    """Raise StateError for rows of a replay buffer that its spaces do not have."""
    arrays, buffer_size = from_state(state["arrays"]), model.replay_buffer.buffer_size
    for name in ("observations", "next_observations", "actions"):
        if name in arrays:
            space = model.action_space if name == "actions" else model.observation_space
            require_in_space(_flat(arrays[name], space), space, f"replay_buffer[{name!r}]")
    for name in ("ep_start", "ep_length", "_current_ep_start"):  # of HER
        if name in arrays and not ((arrays[name] >= 0) & (arrays[name] <= buffer_size)).all():
            raise StateError(f"replay_buffer[{name!r}] holds a row that the buffer does not have; the file is damaged")
    for name in ("rewards", "dones", "timeouts"):
        numbers = arrays[name]
        if not np.isfinite(numbers).all() or (name != "rewards" and not ((numbers >= 0) & (numbers <= 1)).all()):
            raise StateError(f"replay_buffer[{name!r}] holds NaN, infinity or a flag beyond 1; the file is damaged")


def _flat(value: Any, space: Any) -> Any:
    """Return rows of all environments one below the other, each of the shape of the space."""
    if isinstance(value, dict):
        return {key: _flat(each, space[key]) for key, each in value.items()}
    return value.reshape(-1, *space.shape)


def capture_noise(noise: Any) -> StateDict | None:
    """Return where the process of action noise is: the previous noise of Ornstein-Uhlenbeck, for each environment."""
    if isinstance(noise, SupportsState):
        return noise.get_state()
    if isinstance(noise, VectorizedActionNoise):
        return {"noises": [capture_noise(each) for each in noise.noises]}
    if isinstance(noise, OrnsteinUhlenbeckActionNoise):
        return {"previous": to_state(np.array(noise.noise_prev))}
    return None


def restore_noise(noise: Any, state: Any) -> None:
    """Continue the process of ``noise`` where :func:`capture_noise` was called; raise StateError for another kind."""
    if isinstance(noise, SupportsState) and isinstance(state, dict):
        noise.set_state(state)
    elif isinstance(noise, VectorizedActionNoise):
        states = fit(state, {"noises": [None] * noise.n_envs}, "action_noise", {"noises": FREE})["noises"]
        for each, its_state in zip(noise.noises, states, strict=True):
            restore_noise(each, its_state)
    elif isinstance(noise, OrnsteinUhlenbeckActionNoise):
        noise.noise_prev = np.array(noise.noise_prev)
        _fill({"previous": noise.noise_prev}, from_state(state), "action_noise")
        if not np.isfinite(noise.noise_prev).all():
            raise StateError("action_noise holds NaN or infinity; the file is damaged")
    elif state is not None:
        raise StateError(f"the file has a state of action noise, and {type(noise).__name__} has none")


def capture_log(model: BaseAlgorithm) -> StateDict | None:
    """Return the values that were recorded since the last row of the log was written; None before ``learn()``.

    Figures, images and other objects that a user's callback records are left out.
    """
    logger: Logger | None = getattr(model, "_logger", None)
    if logger is None:
        return None
    encoded = {name: codec.encode(value, name, exact=True) for name, value in logger.name_to_value.items()}
    values: Any = {name: value for name, value in encoded.items() if codec.is_whole(value)}
    return {
        "values": values,
        "counts": {name: int(count) for name, count in logger.name_to_count.items() if name in values},
        "excluded": {name: list(formats) for name, formats in logger.name_to_excluded.items() if name in values},
    }


def _restore_log(model: BaseAlgorithm, state: StateDict) -> None:
    """Give ``model`` a logger that writes nothing and holds ``state``; ``learn()`` replaces it."""
    model._logger = Logger(folder=None, output_formats=[])
    put_into_log(model._logger, state)


def put_into_log(logger: Logger, state: Any) -> None:
    """Record the values of :func:`capture_log` in ``logger``."""
    values: Any = codec.decode(state["values"], "log", {})
    kinds = int | float | str | None | np.generic | np.ndarray | torch.Tensor
    for name, formats in state["excluded"].items():
        if isinstance(name, str) and isinstance(values.get(name, {}), kinds):
            logger.name_to_value[name], logger.name_to_excluded[name] = values[name], tuple(formats)
    counts = {name: count for name, count in state["counts"].items() if name in logger.name_to_value}
    logger.name_to_count.update(fit(counts, dict.fromkeys(counts, 0), "log['counts']"))


def _capture_position(model: BaseAlgorithm) -> StateDict | None:
    """Return what the next step starts from, LSTM states of RecurrentPPO included; None before a reset."""
    state = capture_position(model)
    return None if state is None else {**state, **_lstm_states(model)}


def _restore_position(model: BaseAlgorithm, state: StateDict) -> None:
    """Let the next step start from a captured position; raise StateError for one of other environments or LSTMs."""
    fitted = fit_position(state, _lstm_states(model), "position", model, model.n_envs, is_exact=True)
    restore_position(model, fitted)
    if fitted["lstm_states"] is not None:
        parts = [part.to(model.device, copy=True) for part in fitted["lstm_states"]]
        now: Any = model
        now._last_lstm_states = RNNStates((parts[0], parts[1]), (parts[2], parts[3]))


def _lstm_states(model: BaseAlgorithm) -> StateDict:
    states = getattr(model, "_last_lstm_states", None)  # of RecurrentPPO
    return {"lstm_states": None if states is None else [*states.pi, *states.vf]}


def _capture_env(model: BaseAlgorithm) -> StateDict:
    """Return the state of every environment and VecEnvWrapper, and what VecNormalize has measured."""
    env: Any = model.env
    return {"state": vec_state.capture_env_state(env), "normalizer": vec_state.capture_normalizer(env)}


def _restore_env(model: BaseAlgorithm, state: StateDict) -> None:
    """Continue the environments. After an error they have to be reset; statistics are unchanged then."""
    env: Any = model.env
    like = {"vec_env": type(env.unwrapped).__name__, "state": None, "normalizer": None, "normalizer_settings": None}
    older = Rule(free=True, may_lack=True)
    rules = {"vec_env": Rule(same=True, may_lack=True), "state": FREE, "normalizer": FREE, "normalizer_settings": older}
    record = fit(state, like, "environments", rules)
    vec_state.restore_env_state(env, record["state"])
    if record["normalizer"] is not None:
        vec_state.restore_normalizer(env, record["normalizer"])


def capture_generators_of(model: BaseAlgorithm) -> StateDict:
    """Return the states of the global generators, and of that of the action space if it has drawn or has a seed."""
    generator = vars(model.action_space).get("_np_random")
    return {"global": capture_generators(), "action_space": None if generator is None else generator_state(generator)}


def _check_generators(state: StateDict) -> dict[str, Any]:
    names = ("global", "action_space")
    record: dict[str, Any] = fit(state, dict.fromkeys(names), "generators", dict.fromkeys(names, FREE))
    check_generators(record["global"])
    return record


def restore_generators_of(model: BaseAlgorithm, state: StateDict) -> None:
    """Set the generators to a state of :func:`capture_generators_of`."""
    record = _check_generators(state)
    saved = record["action_space"]
    own = None if saved is None else generator_from_state(saved, "generators['action_space']")
    vars(model.action_space)["_np_random"] = own
    apply_generators(record["global"])


NUMBERS: Final = {bool, int, float, np.float32, np.float64, np.int64, np.bool_}


def extra_names(model: BaseAlgorithm) -> tuple[str, ...]:
    """Return the attributes of a subclass that ``extra_state`` names."""
    return tuple(getattr(model, "extra_state", ()))


def _capture_extra(model: BaseAlgorithm) -> StateDict | None:
    """Return the state of each attribute that ``extra_state`` names; None without any."""
    return {name: _extra(getattr(model, name), name) for name in extra_names(model)} or None


def _extra(value: Any, name: str) -> Any:
    if isinstance(value, torch.nn.Module | torch.optim.Optimizer):
        return value.state_dict()
    if isinstance(value, SupportsState):
        return value.get_state()
    if type(value) is RunningMeanStd:
        return vec_state.moments_of(None, value)
    if isinstance(value, np.random.Generator):
        return generator_state(value)
    encoded = codec.encode(value, name, exact=True)
    if not codec.is_whole(encoded):
        raise StateError(f"no file holds {name} of extra_state: give {type(value).__name__} get_state and set_state")
    return encoded


def _restore_extra(model: BaseAlgorithm, state: StateDict) -> None:
    names = extra_names(model)
    saved: Any = fit(state, dict.fromkeys(names), "extra", dict.fromkeys(names, FREE))
    for name in names:
        own, where = getattr(model, name), f"extra[{name!r}]"
        if isinstance(own, torch.nn.Module):
            own.load_state_dict(fit(saved[name], own.state_dict(), where))
        elif isinstance(own, torch.optim.Optimizer):
            fitted: Any = fit_optimizer(saved[name], own, where)
            own.load_state_dict(fitted)
        elif isinstance(own, SupportsState):
            own.set_state(saved[name])
        elif type(own) is RunningMeanStd:
            moments = fit(saved[name], vec_state.moments_of(None, own), where, vec_state.STATISTICS)
            own.mean, own.var = (moments[each].cpu().numpy().copy()[()] for each in ("mean", "var"))
            own.count = moments["count"]
        elif isinstance(own, torch.Tensor):
            own.data.copy_(fit(saved[name], own.detach(), where))
        else:
            is_generator = isinstance(own, np.random.Generator)
            value = generator_from_state(saved[name], where) if is_generator else codec.decode(saved[name], where, {})
            if isinstance(own, np.ndarray):
                _fill(np.empty_like(own), value, where)
            elif not (own is None or isinstance(value, type(own) | None) or {type(value), type(own)} <= NUMBERS):
                raise misfit(where, f"a {type(own).__name__}", value)
            if _is_finite(own) and not _is_finite(value):
                raise misfit(where, "finite, as in a new model", value)
            setattr(model, name, value)


def _is_finite(value: Any) -> bool:
    """Say whether all numbers in a number or an array are finite; True for anything else."""
    return not isinstance(value, float | np.floating | np.ndarray) or bool(np.isfinite(value).all())


def training_state(model: BaseAlgorithm) -> TrainingState:
    """Return the parts of a training in the order in which they are restored; the generators last, as all may draw."""
    if isinstance(model, DistributionalPPO):
        return model._training_state()
    learner, collected, progress, run = Scope

    def part(key: str, scope: Scope, capture: Any, restore: Any, **more: Any) -> StatePart:
        return StatePart(key, scope, partial(capture, model), partial(restore, model), **more)

    noise: Any = model.action_noise
    rows = {"required": hasattr(model, "replay_buffer"), "check": partial(_check_buffer, model)}
    parts = [
        part("learnt", learner, _capture_learnt, _restore_learnt, required=True),
        part("replay_buffer", collected, _capture_buffer, _restore_buffer, **rows),
        StatePart("action_noise", collected, partial(capture_noise, noise), partial(restore_noise, noise)),
        part("progress", progress, capture_progress, restore_progress, required=True),
        part("extra", learner, _capture_extra, _restore_extra, required=bool(extra_names(model))),
        part("log", progress, capture_log, _restore_log),
        part("environments", run, _capture_env, _restore_env, required=True),
        part("position", run, _capture_position, _restore_position),
        part("generators", run, capture_generators_of, restore_generators_of, required=True, check=_check_generators),
    ]
    return TrainingState(parts, {})
