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
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    VecTransposeImage,
)

from rlcore.envs.resumable import (
    LAYERS,
    SETTINGS_OF_NORMALIZER,
    ResumableEnv,
    answers_itself,
    assign,
    fitted,
    require_like,
    saved,
)
from rlcore.errors import StateError
from rlcore.state.tree import FREE, NOT_NEGATIVE, SAME, Rule, fit, misfit
from rlcore.types import StateDict, StateValue

# Attributes by exact types: a subclass may keep more, so it has to answer for itself.
_VEC_LAYERS: Final[Mapping[type, tuple[str, ...]]] = {
    VecNormalize: ("returns", *SETTINGS_OF_NORMALIZER),
    VecMonitor: ("episode_returns", "episode_lengths", "episode_count"),
    VecCheckNan: (),
    VecFrameStack: (),  # its frames are in an object
    VecExtractDictObs: (),
    VecTransposeImage: (),
}
_WAITING: Final = {"needs_reset": True, "_has_reset": False, "_elapsed_steps": None, "state": None}
STATISTICS: Final[Mapping[str, Rule]] = {
    "key": SAME,
    "var": NOT_NEGATIVE,
    "count": Rule(5e-324),
    "norm_obs": Rule(may_lack=True),  # as the next two, in files of earlier versions
    "clip_obs": Rule(0.0, finite=False, may_lack=True),
    "epsilon": Rule(0.0, may_lack=True),
}
"""The rules of what :func:`capture_normalizer` returns."""


def unsupported_reason(env: VecEnv) -> str | None:
    """Return one sentence that says why the state of ``env`` cannot be saved and what to do, or None if it can."""
    base = env.unwrapped
    if any(base._options):
        return "the options that set_options() gave wait for the next reset, and no file holds them; reset it first."
    if type(base) not in (DummyVecEnv, SubprocVecEnv):  # a subclass may keep more
        return f"{type(base).__name__} cannot give the state of its environments; use DummyVecEnv or SubprocVecEnv."
    for layer in _vec_layers(env):
        if type(layer) not in _VEC_LAYERS and not answers_itself(layer):
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
    that is a :class:`rlcore.envs.resumable.SupportsState`. Not covered: the clock of the monitors.
    """
    if unsupported_reason(env) is not None:
        return None
    base = env.unwrapped
    return {
        "vec_env": type(base).__name__,
        "seeds": [None if seed is None else int(seed) for seed in base._seeds],
        "environments": list(base.env_method("get_state")),
        "wrappers": [{"layer": type(layer).__name__, "state": _layer_state(layer)} for layer in _vec_layers(env)],
    }


def restore_env_state(env: VecEnv, state: StateDict) -> None:
    """Put a state of :func:`capture_env_state` into ``env``, which need not have been reset before.

    Another class rounds differently: DummyVecEnv makes rewards float32, and SubprocVecEnv does not.

    :param env: one for which :func:`unsupported_reason` has none
    :raises StateError: another number or kind of environments or wrappers, or a damaged state; the environments have
        to be reset then
    """
    layers: list[Any] = list(_vec_layers(env))
    own_class: StateDict = {"vec_env": type(env.unwrapped).__name__}
    state = own_class | state  # earlier files lack it
    form = own_class | {
        "seeds": [0] * env.num_envs,
        "environments": None,
        "monitors": None,  # in files of earlier versions
        "wrappers": [{"layer": type(layer).__name__, "state": None} for layer in layers],
    }
    require_like(
        state, form, lambda each: " of ".join([*(entry["layer"] for entry in each["wrappers"]), each["vec_env"]])
    )
    rules = {"layer": SAME, "environments": FREE, "state": FREE, "monitors": Rule(may_lack=True)}
    record = fit(state, form, "env_state", {**rules, "seeds": Rule(0, 2**64 - 1, optional=True)})
    if number_of_envs(state) != env.num_envs:
        raise misfit("env_state['environments']", f"a list of {env.num_envs} entries", record["environments"])
    known: list[tuple[object, dict[str, Any]]] = [(env.unwrapped, {"_seeds": record["seeds"]})]
    for layer, entry in zip(layers, record["wrappers"], strict=True):
        if type(layer) is VecFrameStack:
            frames = fit(entry["state"], _layer_state(layer), entry["layer"], {})["frames"]
            for stack, tensor in zip(_stacks(layer), frames, strict=True):
                stack.stacked_obs[...] = tensor.cpu().numpy()
        elif type(layer) in _VEC_LAYERS:
            known.append((layer, fitted(entry["state"], _layer_state(layer), entry["layer"])))
        else:
            layer.set_state(entry["state"])
    for position, each in enumerate(record["environments"]):
        problem = env.unwrapped.env_method("try_set_state", each, indices=position)[0]
        if problem is not None:
            raise StateError(f"environment {position}: {problem}")
    for target, values in known:
        assign(target, values)


def number_of_envs(state: Any) -> int:
    """Return how many environments a state of :func:`capture_env_state` is of."""
    return len(state["environments"])


def require_running(state: Any) -> None:
    """Raise StateError for an environment that waits for a reset: those of a VecEnv never do between two steps."""
    known = {kind.__name__ for kind in LAYERS}
    layers = [layer for environment in state["environments"] for layer in environment["layers"]]
    for own in (layer["state"] for layer in layers if layer["layer"].partition("(")[0] in known):
        if any(name in own and own[name] is value for name, value in _WAITING.items()):
            raise StateError("env_state has an environment that was not reset, so it has no next step; it is damaged")


def _vec_layers(env: VecEnv) -> Iterator[VecEnvWrapper]:
    """Yield the VecEnvWrappers of ``env`` from the outside in."""
    while isinstance(env, VecEnvWrapper):
        yield env
        env = env.venv


def _stacks(layer: VecFrameStack) -> list[Any]:
    """Return what holds the frames of each part of an observation."""
    stacked: Any = layer.stacked_obs
    return list(getattr(stacked, "sub_stacked_observations", {"": stacked}).values())


def _layer_state(layer: Any) -> StateDict:
    if type(layer) is VecFrameStack:
        return {"frames": [torch.from_numpy(each.stacked_obs.copy()) for each in _stacks(layer)]}
    names = _VEC_LAYERS.get(type(layer))
    state: StateDict = layer.get_state() if names is None else saved(layer, names)
    if type(layer) is VecNormalize:
        state |= {name: kind(getattr(layer, name)) for name, kind in SETTINGS_OF_NORMALIZER.items()}
    return state


def capture_normalizer(env: VecEnv) -> StateDict | None:
    """Return the running statistics of every VecNormalize of ``env``, from the outside in, or None without one.

    Keys: ``layers``, a list of ``{"observation": [moments], "return": moments}``, with moments ``{"key", "mean",
    "var", "count"}``: the key of a Dict observation space (else None), float64 tensors of the observation's shape
    (of shape () for returns), and a float. Next to them ``norm_obs``, ``clip_obs`` and ``epsilon``, for who normalises
    without the wrapper; a restore leaves an environment's own.
    """
    layers: list[StateValue] = [
        {
            "observation": [moments_of(key, statistics) for key, statistics in _observation_moments(layer).items()],
            "return": moments_of(None, layer.ret_rms),
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
    own = capture_normalizer(env)
    if own is None:
        raise StateError(
            "the state holds statistics of VecNormalize, but the environment has no VecNormalize wrapper; "
            "wrap it in VecNormalize"
        )
    layers = fit(state, own, "normalizer", STATISTICS)["layers"]
    for normalizer, layer in zip(_normalizers(env), layers, strict=True):
        statistics = [*_observation_moments(normalizer).values(), normalizer.ret_rms]
        for target, moments in zip(statistics, [*layer["observation"], layer["return"]], strict=True):
            target.mean, target.var = moments["mean"].cpu().numpy().copy(), moments["var"].cpu().numpy().copy()
            target.count = moments["count"]


def require_restorable(env: VecEnv) -> None:
    """Raise StateError for statistics or settings of VecNormalize that a restore would refuse, or would round."""
    like: Any = capture_normalizer(env) or {"layers": []}
    for moments in [each for layer in like["layers"] for each in (*layer["observation"], layer["return"])]:
        if not moments["mean"].dtype == moments["var"].dtype == torch.float64:
            raise StateError("mean and var of VecNormalize are float64 after a load; make them float64 now")
        moments.update(mean=torch.zeros_like(moments["mean"]), var=torch.zeros_like(moments["var"]))
    fit(capture_normalizer(env) or {"layers": []}, like, "VecNormalize", STATISTICS)
    for layer in [each for each in _normalizers(env) if type(each) is VecNormalize]:
        own: Any = _layer_state(layer)
        fitted(own, own, "VecNormalize")
        built = [key for key in _observation_moments(layer) if key is not None]
        if built and set(layer.norm_obs_keys or ()) != set(built):
            changed = f"norm_obs_keys of VecNormalize is {layer.norm_obs_keys}, and it was built with {built}"
            raise StateError(f"{changed}; give norm_obs_keys to the constructor")


def _normalizers(env: VecEnv) -> list[VecNormalize]:
    return [layer for layer in _vec_layers(env) if isinstance(layer, VecNormalize)]


def _observation_moments(normalizer: VecNormalize) -> Mapping[str | None, RunningMeanStd]:
    """Return the observation statistics by key of a Dict observation space, or under None."""
    # A VecEnvWrapper forwards what it lacks to the next one: only its own statistics count.
    statistics = vars(normalizer).get("obs_rms")
    if statistics is None:
        return {}
    return statistics if isinstance(statistics, dict) else {None: statistics}


def moments_of(key: str | None, statistics: RunningMeanStd) -> StateDict:
    """Return statistics as plain values: ``key``, ``mean``, ``var`` and ``count``."""
    mean, var = (torch.from_numpy(np.array(moment)) for moment in (statistics.mean, statistics.var))
    return {"key": key, "mean": mean, "var": var, "count": float(statistics.count)}
