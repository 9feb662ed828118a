"""State of a Stable-Baselines3 vectorised environment: what a resumed training needs to step on bit-exactly.

Works through the stock interfaces (``env_method``, ``get_attr``), hence also for the workers of SubprocVecEnv. The
statistics of VecNormalize are kept apart from the rest, because they belong to what was learnt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

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

from rlcore.envs.attributes import LAYERS, assign, saved
from rlcore.envs.resumable import ResumableEnv, SupportsState
from rlcore.errors import StateError
from rlcore.state.schema import describe, read_count, read_dict, read_list
from rlcore.state.tree import NOT_NEGATIVE, SAME, Rule, fit
from rlcore.types import StateDict, StateValue

# Attributes by exact types: a subclass may keep more, so it has to answer for itself.
_VEC_LAYERS: Final[Mapping[type, tuple[str, ...]]] = {
    VecNormalize: ("returns",),
    VecMonitor: ("episode_returns", "episode_lengths", "episode_count"),
    VecCheckNan: (),
    VecExtractDictObs: (),
    VecTransposeImage: (),
}
_NOT_FINITE: Final = dict.fromkeys(("returns", "episode_returns"), Rule(finite=False))
_MOMENTS: Final = {"key": SAME, "var": NOT_NEGATIVE, "count": Rule(least=5e-324)}
_KNOWN_LAYERS: Final = frozenset(layer.__name__ for layer in LAYERS)


def unsupported_reason(env: VecEnv) -> str | None:
    """Return one sentence that says why the state of ``env`` cannot be saved and what to do, or None if it can."""
    base = env.unwrapped
    if not isinstance(base, DummyVecEnv | SubprocVecEnv):
        return f"{type(base).__name__} cannot give the state of its environments; use DummyVecEnv or SubprocVecEnv."
    for layer in _vec_layers(env):
        if type(layer) not in _VEC_LAYERS and not isinstance(layer, SupportsState):
            name = type(layer).__name__
            return f"{name} cannot give its state; implement get_state() and set_state(state) in {name}."
    # get_attr asks the outermost wrapper first, and every object has the module of its class.
    for position, module in enumerate(base.get_attr("__module__")):
        if module != ResumableEnv.__module__:
            return (
                f"environment {position}: ResumableEnv is not its outermost wrapper; give make_vec_env "
                "wrapper_class=ResumableEnv, or put it around Monitor: ResumableEnv(Monitor(env))."
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
    before = _capture(env) if were_reset else None
    try:
        _restore(env, read_dict(state, "state"))
    except StateError:
        if before is not None:
            _restore(env, before)
        raise


def number_of_envs(state: StateDict) -> int:
    """Return of how many environments a state of :func:`capture_env_state` is.

    :raises StateError: if it is no such state
    """
    return len(read_list(read_dict(state, "env_state").get("environments"), "env_state['environments']"))


def require_running(state: StateDict) -> None:
    """Refuse environments that wait for a reset: those of a VecEnv never do between two steps.

    :param state: of :func:`capture_env_state`
    :raises StateError: if it is no such state, or one of them waits
    """
    for environment in _environments(state, number_of_envs(state)):
        layers: Any = environment.get("layers") if isinstance(environment, dict) else None
        for layer in filter(lambda layer: isinstance(layer, dict), layers or []):
            fields = layer.get("state")
            if not isinstance(fields, dict) or str(layer.get("layer")).partition("(")[0] not in _KNOWN_LAYERS:
                continue
            waits = fields.get("needs_reset", False) is not False or fields.get("_has_reset", True) is not True
            if waits or any(fields.get(name, 0) is None for name in ("_elapsed_steps", "state")):
                raise StateError(
                    "env_state has an environment that was not reset, so it has no next step; it is damaged"
                )


def _vec_layers(env: VecEnv) -> Iterator[VecEnvWrapper]:
    """Yield the VecEnvWrappers of ``env`` from the outside in."""
    while isinstance(env, VecEnvWrapper):
        yield env
        env = env.venv


def _capture(env: VecEnv) -> StateDict:
    base = env.unwrapped
    return {
        "seeds": [None if seed is None else int(seed) for seed in base._seeds],
        "environments": list(base.env_method("get_state")),
        "monitors": None,  # files of earlier versions may have them: see _environments
        "wrappers": [{"layer": type(layer).__name__, "state": _layer_state(layer)} for layer in _vec_layers(env)],
    }


def _layer_state(layer: Any) -> StateDict:
    names = _VEC_LAYERS.get(type(layer))
    state: StateDict = layer.get_state() if names is None else saved(layer, names)
    return state


def _restore(env: VecEnv, state: StateDict) -> None:
    """Check and restore, part by part; what can refuse only when it is asked (environments) comes after the checks."""
    environments = _environments(state, env.num_envs)
    where = "state['seeds']"
    seeds = read_list(state.get("seeds"), where, env.num_envs)
    seeds = [None if seed is None else read_count(seed, where, 2**64 - 1) for seed in seeds]
    known: list[tuple[object, dict[str, Any]]] = [(env.unwrapped, {"_seeds": seeds})]
    others: list[tuple[Any, StateDict]] = []
    layers = list(_vec_layers(env))
    for layer, entry in zip(layers, read_list(state.get("wrappers"), "state['wrappers']", len(layers)), strict=True):
        name, record = type(layer).__name__, read_dict(entry, "state['wrappers']")
        if record.get("layer") != name:
            raise StateError(
                f"the state has the wrapper {describe(record.get('layer'))} where this environment has {name!r}; "
                "build it with the same VecEnvWrappers in the same order"
            )
        if type(layer) in _VEC_LAYERS:
            known.append((layer, _fitted(record.get("state"), _layer_state(layer), name, _NOT_FINITE)))
        else:
            others.append((layer, read_dict(record.get("state"), name)))
    for layer, own in others:
        layer.set_state(own)
    for position, each in enumerate(environments):
        record = read_dict(each, f"state['environments'][{position}]")
        problem = env.unwrapped.env_method("try_set_state", record, indices=position)[0]
        if problem is not None:
            raise StateError(f"environment {position}: {problem}")
    for target, values in known:
        assign(target, values)


def _environments(state: StateDict, number: int) -> list[StateValue]:
    """Return the states of the environments.

    Earlier versions saved a Monitor outside of ResumableEnv under ``monitors``: it becomes the outermost layer.
    """
    environments, monitors = state.get("environments"), state.get("monitors")
    if not isinstance(environments, list) or len(environments) != number:
        found = f"{len(environments)} environments" if isinstance(environments, list) else describe(environments)
        raise StateError(
            f"the state is of {found}, but this vectorised environment has {number}; build it with the same number "
            "(n_envs)"
        )
    if monitors is None:
        return environments
    outside: list[StateValue] = [
        {"layer": "Monitor", "state": each} for each in read_list(monitors, "state['monitors']", number)
    ]
    inside = [read_dict(each, "state['environments']") for each in environments]
    return [
        {**each, "layers": [monitor, *read_list(each.get("layers"), "state['layers']")]}
        for each, monitor in zip(inside, outside, strict=True)
    ]


def capture_normalizer(env: VecEnv) -> StateDict | None:
    """Return the running statistics of every VecNormalize of ``env``, from the outside in, or None without one.

    Keys: ``layers``, a list of ``{"observation": [moments], "return": moments}``, with moments ``{"key", "mean",
    "var", "count"}``: the key of a Dict observation space (else None), float64 tensors of the observation's shape
    (of shape () for returns), and a float. Next to them ``norm_obs``, ``clip_obs`` and ``epsilon``, for who normalises
    without the wrapper; a restore leaves an environment's own.
    """
    layers: list[StateValue] = [
        {
            "observation": [_moments(key, statistics) for key, statistics in _observation_moments(layer).items()],
            "return": _moments(None, layer.ret_rms),
            "norm_obs": bool(layer.norm_obs),
            "clip_obs": float(layer.clip_obs),
            "epsilon": float(layer.epsilon),
        }
        for layer in _normalizers(env)
    ]
    return {"layers": layers} if layers else None


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
    changes: list[tuple[RunningMeanStd, dict[str, Any]]] = []
    for normalizer, entry in zip(normalizers, layers, strict=True):
        layer, own = read_dict(entry, "normalizer['layers']"), _observation_moments(normalizer)
        moments = read_list(layer.get("observation"), "normalizer['observation']", len(own))
        for (key, statistics), each in zip(own.items(), moments, strict=True):
            where = f"observation statistics {key or ''}".rstrip()
            changes.append((statistics, _fitted(each, _moments(key, statistics), where, _MOMENTS)))
        returns = _moments(None, normalizer.ret_rms)
        changes.append((normalizer.ret_rms, _fitted(layer.get("return"), returns, "return statistics", _MOMENTS)))
    for statistics, values in changes:
        del values["key"]
        assign(statistics, values)


def _normalizers(env: VecEnv) -> list[VecNormalize]:
    return [layer for layer in _vec_layers(env) if isinstance(layer, VecNormalize)]


def _observation_moments(normalizer: VecNormalize) -> Mapping[str | None, RunningMeanStd]:
    """Return the observation statistics by key of a Dict observation space, or under None."""
    # A VecEnvWrapper forwards what it lacks to the next one: only its own statistics count.
    statistics = vars(normalizer).get("obs_rms")
    if statistics is None:
        return {}
    return statistics if isinstance(statistics, dict) else {None: statistics}


def _moments(key: str | None, statistics: RunningMeanStd) -> StateDict:
    mean, var = (torch.from_numpy(np.array(moment)) for moment in (statistics.mean, statistics.var))
    return {"key": key, "mean": mean, "var": var, "count": float(statistics.count)}


def _fitted(state: StateValue, like: StateDict, where: str, rules: Mapping[str, Rule]) -> dict[str, Any]:
    """Return the attributes of a saved state in the form of ``like``, with arrays of their own.

    :raises StateError: if it does not fit
    """
    values = fit(state, like, where, rules).items()
    arrays = {name: each.detach().cpu().numpy().copy() for name, each in values if isinstance(each, torch.Tensor)}
    return {**dict(values), **arrays}
