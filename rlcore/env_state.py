"""State of a Stable-Baselines3 vectorised environment: what a resumed training needs to step on bit-exactly.

Works through the stock interfaces (``env_method``, ``get_attr``, ``set_attr``), hence also for the workers of
SubprocVecEnv. The statistics of VecNormalize are kept apart from the rest, because they belong to what was learnt.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    SubprocVecEnv,
    VecCheckNan,
    VecEnv,
    VecEnvWrapper,
    VecExtractDictObs,
    VecMonitor,
    VecNormalize,
    VecTransposeImage,
)

from rlcore.envs import KNOWN_LAYERS, MONITOR_FIELDS, ResumableEnv, SupportsState
from rlcore.errors import StateError
from rlcore.state.fields import (
    Change,
    Field,
    apply_changes,
    counter_field,
    plan_changes,
    read_fields,
    tensor_field,
    to_tensor,
)
from rlcore.state.schema import describe, misfit, read_count, read_dict, read_list, read_record, read_tensor
from rlcore.types import StateDict, StateValue

# Exact types: a subclass may keep more, so it has to answer for itself.
_STATELESS = (VecCheckNan, VecExtractDictObs, VecTransposeImage)
_HOW_TO = "wrap each environment in rlcore.envs.ResumableEnv as its outermost wrapper (wrapper_class=ResumableEnv)"


def unsupported_reason(env: VecEnv) -> str | None:
    """Return one sentence that names what cannot give its state, or None if :func:`capture_env_state` can."""
    base = env.unwrapped
    if not isinstance(base, DummyVecEnv | SubprocVecEnv):
        return f"{type(base).__name__} cannot give the state of its environments; use DummyVecEnv or SubprocVecEnv."
    for layer in _vec_layers(env):
        if _vec_fields(layer) is None and not isinstance(layer, SupportsState):
            name = type(layer).__name__
            return f"{name} cannot give its state; implement get_state() and set_state(state) in {name}."
    covered = _are_resumable(base)
    for position, text in enumerate(_descriptions(base)):
        reason = None if covered[position] else _uncovered(text, base)
        if reason is not None:
            return f"environment {position}: {reason}"
    monitored = _outer_monitors(base)
    if len(set(monitored)) > 1:
        return (
            f"Monitor lies outside environment {monitored.index(True)} and not outside environment "
            f"{monitored.index(False)}; wrap all of them alike."
        )
    return None


def capture_env_state(env: VecEnv) -> StateDict | None:
    """Return the state of ``env`` between two steps, or None if a part of it cannot give its state.

    Covered: every environment, the running episode of Monitor and VecMonitor, the discounted returns of VecNormalize
    (not its statistics: :func:`capture_normalizer`), the seeds that wait for the next reset, and every VecEnvWrapper
    that is a :class:`rlcore.envs.SupportsState`. Not covered: the clock of the monitors.
    """
    return _capture(env) if unsupported_reason(env) is None else None


def restore_env_state(env: VecEnv, state: StateDict, *, were_reset: bool = True) -> None:
    """Put a state of :func:`capture_env_state` into ``env``.

    :param were_reset: False where they were not reset before: some have no state until then, so that they cannot be put
        back, and after an error they have to be reset
    :raises StateError: another number or kind of environments or wrappers, or a damaged state; nothing was changed
    """
    reason = unsupported_reason(env)
    if reason is not None:
        raise StateError(f"the state cannot be restored into this environment: {reason}")
    record = _checked_outline(env, state)
    before = _capture(env) if were_reset else None
    try:
        _apply(env, record)
    except StateError:
        if before is not None:
            _apply(env, before)
        raise


def number_of_envs(state: StateDict) -> int:
    """Of how many environments a state of :func:`capture_env_state` is.

    :raises StateError: if it is no such state
    """
    return len(read_list(read_dict(state, "env_state").get("environments"), "env_state['environments']"))


def require_running(state: StateDict) -> None:
    """Refuse environments that wait for a reset: those of a VecEnv never do between two steps.

    :param state: of :func:`capture_env_state`
    :raises StateError: if it is no such state, or one of them waits
    """
    number_of_envs(state)
    monitors: Any = state.get("monitors") or []
    environments: Any = state["environments"]
    layers = [layer for each in environments if isinstance(each, dict) for layer in each.get("layers") or []]
    known = [each for each in layers if isinstance(each, dict) and _kind_of_layer(each) in KNOWN_LAYERS]
    for fields in [*monitors, *(each.get("state") for each in known)]:
        waits = isinstance(fields, dict) and (
            fields.get("needs_reset", False) is not False
            or fields.get("_has_reset", True) is not True
            or any(fields.get(name, 0) is None for name in ("_elapsed_steps", "state"))
        )
        if waits:
            raise StateError("env_state has an environment that was not reset, so it has no next step; it is damaged")


def _kind_of_layer(record: StateDict) -> str:
    """The class of a layer in the state of a ResumableEnv: ``TimeLimit(500)`` is a TimeLimit."""
    return str(record.get("layer")).partition("(")[0]


def capture_normalizer(env: VecEnv) -> StateDict | None:
    """Return the running statistics of every VecNormalize of ``env``, from the outside in, or None without one.

    Keys: ``layers``, a list of ``{"observation": [moments], "return": moments}``, with moments ``{"key", "mean",
    "var", "count"}``: the key of a Dict observation space (else None), float64 tensors of the observation's shape
    (of shape () for returns), and a float. Beside them ``norm_obs``, ``clip_obs`` and ``epsilon``, for who normalises
    without the wrapper; a restore leaves an environment's own.
    """
    normalizers = _normalizers(env)
    if not normalizers:
        return None
    return {"layers": [_normalizer_state(normalizer) for normalizer in normalizers]}


def restore_normalizer(env: VecEnv, state: StateDict) -> None:
    """Put statistics of :func:`capture_normalizer` into the VecNormalize wrappers of ``env``.

    :raises StateError: ``env`` has no VecNormalize, or another number, key, shape or type; nothing was changed
    """
    normalizers = _normalizers(env)
    if not normalizers:
        raise StateError(
            "the state holds statistics of VecNormalize, but the environment has no VecNormalize wrapper; "
            "wrap it in VecNormalize"
        )
    layers = read_list(read_dict(state, "normalizer").get("layers"), "normalizer['layers']", len(normalizers))
    changes: list[Change] = []
    for normalizer, layer in zip(normalizers, layers, strict=True):
        changes += _plan_normalizer(normalizer, read_dict(layer, "normalizer['layers']"))
    apply_changes(changes)


def _vec_layers(env: VecEnv) -> Iterator[VecEnvWrapper]:
    """Yield the VecEnvWrappers of ``env`` from the outside in."""
    while isinstance(env, VecEnvWrapper):
        yield env
        env = env.venv


def _vec_fields(layer: VecEnvWrapper) -> tuple[Field, ...] | None:
    """Return the fields of a wrapper of Stable-Baselines3, or None if it is not a known one."""
    shape = (layer.num_envs,)
    if type(layer) is VecNormalize:
        return (tensor_field("returns", shape, (torch.float64,)),)
    if type(layer) is VecMonitor:
        return (
            tensor_field("episode_returns", shape, (torch.float32,)),
            tensor_field("episode_lengths", shape, (torch.int32,)),
            counter_field("episode_count"),
        )
    return () if type(layer) in _STATELESS else None


def _descriptions(base: VecEnv) -> list[str]:
    """Return each environment's text: the only account of its layers that a worker process can give safely."""
    return [str(text) for text in base.env_method("__str__")]


def _are_resumable(base: VecEnv) -> list[bool]:
    """Whether ResumableEnv is the outermost layer of each environment; Monitor may lie around it."""
    outermost = [text.removeprefix("<Monitor").startswith("<ResumableEnv") for text in _descriptions(base)]
    return [first and inside for first, inside in zip(outermost, base.env_is_wrapped(ResumableEnv), strict=True)]


def _uncovered(text: str, base: VecEnv) -> str | None:
    """Return why an environment outside ResumableEnv cannot give its whole state, or None.

    :param text: ``<Outer<Inner<CartPoleEnv<CartPole-v1>>>>``, or ``<Outer<CustomEnv instance>>`` without an id
    """
    inside = text.removeprefix("<Monitor")
    innermost = re.search(r"<(\w+)(?:<[^<> ]*>| instance>)>*$", inside)
    name = innermost.group(1) if innermost else inside
    if not (base.has_attr("get_state") and base.has_attr("set_state")):
        return f"{name} cannot give its state; {_HOW_TO}."
    if innermost is None or innermost.start() > 0:
        return f"{inside[1:].split('<')[0]} is not covered by the state of what it wraps; {_HOW_TO}."
    if isinstance(base, SubprocVecEnv):
        # An error of a bare set_state would end the worker process; ResumableEnv hands it over as text.
        return f"{name} runs in a worker process, which would not survive a state that does not fit; {_HOW_TO}."
    return None


def _outer_monitors(base: VecEnv) -> list[bool]:
    """Whether Monitor lies outside each environment's own state: of all or of none, where the state can be taken."""
    return [text.startswith("<Monitor<") for text in _descriptions(base)]


def _has_outer_monitor(base: VecEnv) -> bool:
    return all(_outer_monitors(base))


def _capture(env: VecEnv) -> StateDict:
    base = env.unwrapped
    return {
        "seeds": [None if seed is None else int(seed) for seed in base._seeds],
        "environments": list(base.env_method("get_state")),
        "monitors": _monitor_states(base) if _has_outer_monitor(base) else None,
        "wrappers": [_vec_layer_record(layer) for layer in _vec_layers(env)],
    }


def _monitor_states(base: VecEnv) -> list[StateValue]:
    columns = [(field, base.get_attr(field.attribute)) for field in MONITOR_FIELDS]
    return [{field.attribute: field.encode(values[i]) for field, values in columns} for i in range(base.num_envs)]


def _vec_layer_record(layer: VecEnvWrapper) -> StateDict:
    fields = _vec_fields(layer)
    if fields is not None:
        return {"layer": type(layer).__name__, "state": read_fields(layer, fields)}
    assert isinstance(layer, SupportsState)
    return {"layer": type(layer).__name__, "state": layer.get_state()}


def _checked_outline(env: VecEnv, state: StateDict) -> StateDict:
    """Check the number and the kinds of what is to be restored, so that the parts can be gone through."""
    record = read_dict(state, "state")
    environments = record.get("environments")
    if not isinstance(environments, list) or len(environments) != env.num_envs:
        found = f"{len(environments)} environments" if isinstance(environments, list) else describe(environments)
        raise StateError(
            f"the state is of {found}, but this vectorised environment has {env.num_envs}; "
            "build it with the same number (n_envs)"
        )
    layers = [type(layer).__name__ for layer in _vec_layers(env)]
    wrappers = read_list(record.get("wrappers"), f"state['wrappers'] for {layers}", len(layers))
    for name, wrapper in zip(layers, wrappers, strict=True):
        found_name = read_dict(wrapper, "state['wrappers']").get("layer")
        if found_name != name:
            raise StateError(
                f"the state has the wrapper {describe(found_name)} where this environment has {name!r}; "
                "build it with the same VecEnvWrappers in the same order"
            )
    _require_seeds(record.get("seeds"), env.num_envs)
    return record


def _require_seeds(value: StateValue, n_envs: int) -> list[int | None]:
    where = "state['seeds']"
    seeds = read_list(value, where, n_envs)
    return [None if seed is None else read_count(seed, where, 2**64 - 1) for seed in seeds]


def _apply(env: VecEnv, record: StateDict) -> None:
    """Check and restore, part by part; what can refuse only when it is asked (environments) comes after the checks."""
    base = env.unwrapped
    changes: list[Change] = [(base, "_seeds", _require_seeds(record["seeds"], env.num_envs))]
    delegated: list[tuple[SupportsState, StateDict]] = []
    wrappers = read_list(record["wrappers"], "state['wrappers']", sum(1 for _ in _vec_layers(env)))
    for layer, wrapper in zip(_vec_layers(env), wrappers, strict=True):
        part = read_dict(wrapper, "state['wrappers']").get("state")
        fields = _vec_fields(layer)
        if fields is not None:
            changes += plan_changes(layer, fields, part, type(layer).__name__)
        elif isinstance(layer, SupportsState):
            delegated.append((layer, read_dict(part, type(layer).__name__)))
    monitors = _planned_monitors(base, record.get("monitors"))
    for target, part_state in delegated:
        target.set_state(part_state)
    _set_environments(base, read_list(record["environments"], "state['environments']", env.num_envs))
    for position, attribute, value in monitors:
        base.set_attr(attribute, value, indices=position)
    apply_changes(changes)


def _planned_monitors(base: VecEnv, value: StateValue) -> list[tuple[int, str, object]]:
    """Return (environment, attribute, value) for the Monitors that lie outside the environments' own state."""
    if (value is not None) != _has_outer_monitor(base):
        raise StateError(
            "a Monitor lies outside ResumableEnv in only one of the saved and the present environment; "
            "wrap the environment in the same order as when the state was taken"
        )
    if value is None:
        return []
    plans: list[tuple[int, str, object]] = []
    for position, monitor in enumerate(read_list(value, "state['monitors']", base.num_envs)):
        for _, attribute, new in plan_changes(None, MONITOR_FIELDS, monitor, f"Monitor {position}"):
            plans.append((position, attribute, new))
    return plans


def _set_environments(base: VecEnv, states: list[StateValue]) -> None:
    for position, (resumable, state) in enumerate(zip(_are_resumable(base), states, strict=True)):
        record = read_dict(state, f"state['environments'][{position}]")
        if resumable:
            problem = base.env_method("try_set_state", record, indices=position)[0]
            if problem is not None:
                raise StateError(f"environment {position}: {problem}")
        else:
            base.env_method("set_state", record, indices=position)


def _normalizers(env: VecEnv) -> list[VecNormalize]:
    return [layer for layer in _vec_layers(env) if isinstance(layer, VecNormalize)]


def _observation_moments(normalizer: VecNormalize) -> Mapping[str | None, RunningMeanStd]:
    """Return the observation statistics by key of a Dict observation space, or under None."""
    # A VecEnvWrapper forwards what it lacks to the next one: only its own statistics count.
    statistics = vars(normalizer).get("obs_rms")
    if statistics is None:
        return {}
    return statistics if isinstance(statistics, dict) else {None: statistics}


def _normalizer_state(normalizer: VecNormalize) -> StateDict:
    observation = _observation_moments(normalizer)
    return {
        "observation": [_moments(key, statistics) for key, statistics in observation.items()],
        "return": _moments(None, normalizer.ret_rms),
        "norm_obs": bool(normalizer.norm_obs),
        "clip_obs": float(normalizer.clip_obs),
        "epsilon": float(normalizer.epsilon),
    }


def _moments(key: str | None, statistics: RunningMeanStd) -> StateDict:
    return {
        "key": key,
        "mean": to_tensor(statistics.mean),
        "var": to_tensor(statistics.var),
        "count": float(statistics.count),
    }


def _plan_normalizer(normalizer: VecNormalize, state: StateDict) -> list[Change]:
    observation = _observation_moments(normalizer)
    saved = read_list(state.get("observation"), "normalizer['observation']", len(observation))
    changes: list[Change] = []
    for (key, statistics), moments in zip(observation.items(), saved, strict=True):
        changes += _plan_moments(key, statistics, moments, f"observation statistics {key or ''}".rstrip())
    return changes + _plan_moments(None, normalizer.ret_rms, state.get("return"), "return statistics")


def _plan_moments(key: str | None, statistics: RunningMeanStd, state: StateValue, where: str) -> list[Change]:
    record = read_record(state, where, ("key", "mean", "var", "count"))
    if record["key"] != key:
        raise StateError(f"{where}: the state has no statistics for this key; use the same observation space")
    count = record["count"]
    if not isinstance(count, float) or not 0 < count < math.inf:
        raise misfit(f"{where}.count", "a positive float", count)
    shape = tuple(statistics.mean.shape)
    changes: list[Change] = [(statistics, "count", count)]
    for name, least in (("mean", -math.inf), ("var", 0.0)):
        moment = read_tensor(record[name], f"{where}.{name}", shape, (torch.float64,), least=least)
        changes.append((statistics, name, np.array(moment.detach().cpu().numpy())))
    return changes
