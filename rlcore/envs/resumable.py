"""Environments whose state can be taken and put back exactly, so that a resumed training continues mid-episode."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol, runtime_checkable

import gymnasium as gym
import numpy as np
import torch
from gymnasium.envs.classic_control import (
    AcrobotEnv,
    CartPoleEnv,
    Continuous_MountainCarEnv,
    MountainCarEnv,
    PendulumEnv,
)
from gymnasium.wrappers import (
    ClipAction,
    FlattenObservation,
    OrderEnforcing,
    PassiveEnvChecker,
    RescaleAction,
    RescaleObservation,
    TimeLimit,
)
from stable_baselines3.common.monitor import Monitor

from rlcore.checkpoint.container import unusable
from rlcore.errors import SettingError, StateError, quoted
from rlcore.state.training import generator_from_state, generator_state
from rlcore.state.tree import FREE, LARGEST_COUNT, SAME, Rule, fit
from rlcore.types import StateDict, StateValue

Template = Mapping[Any, StateValue]
"""The attributes that an object keeps between steps, each with a value of the form that it has in a saved state."""

GENERATOR: Final[Template] = {"_np_random": None, "_np_random_seed": 0}
"""The attributes that :class:`gymnasium.Env` draws from."""


def _physics(size: int) -> Template:
    return {"state": torch.zeros(size), **GENERATOR}


# The keys are exact types: a subclass may keep more, so it has to answer for itself.
LAYERS: Final[Mapping[type, Template]] = {
    CartPoleEnv: {**_physics(4), "steps_beyond_terminated": 0},
    PendulumEnv: {**_physics(2), "last_u": torch.zeros(())},
    MountainCarEnv: _physics(2),
    Continuous_MountainCarEnv: _physics(2),
    AcrobotEnv: _physics(4),
    TimeLimit: {"_elapsed_steps": 0},
    OrderEnforcing: {"_has_reset": False},
    PassiveEnvChecker: {
        **dict.fromkeys(("checked_reset", "checked_step", "checked_data_reuse"), False),
        "_previous_data": None,
    },
    Monitor: {"rewards": torch.zeros(0), "needs_reset": False, "total_steps": 0},
    ClipAction: {},
    FlattenObservation: {},
    RescaleAction: {},
    RescaleObservation: {},
}
SETTINGS_OF_NORMALIZER: Final[dict[str, type]] = {
    **dict.fromkeys(("training", "norm_obs", "norm_reward"), bool),
    **dict.fromkeys(("clip_obs", "clip_reward", "gamma", "epsilon"), float),
}
"""Of VecNormalize, which callbacks change, to numbers of any kind; files of earlier versions lack them."""
_RULES: Final = {
    **dict.fromkeys(SETTINGS_OF_NORMALIZER, Rule(0.0, finite=False, may_lack=True)),
    "gamma": Rule(0.0, 1.0, may_lack=True),
    **dict.fromkeys(("state", "last_u"), Rule(finite=False, optional=True)),
    "episode_returns": Rule(finite=False),
    **dict.fromkeys(("steps_beyond_terminated", "_elapsed_steps"), Rule(0, LARGEST_COUNT, optional=True)),
    "rewards": Rule(finite=False, any_length=True),
    "_np_random": FREE,
    "_np_random_seed": Rule(-1, optional=True),
}


def saved(owner: object, names: Collection[str]) -> StateDict:
    """Return the attributes of ``owner`` as plain values that share no memory with it."""
    if isinstance(owner, PassiveEnvChecker):
        # A restored environment steps without the reset that the checker waits for: its one-time checks count as done.
        return {**dict.fromkeys(names, bool(owner.checked_reset)), "_previous_data": None}
    # An attribute that a version of Gymnasium lacks is an error, except for those that the first reset creates.
    late = {name: None for name in ("state", "last_u") if name in names and not hasattr(owner, name)}
    return {name: None if name in late else _plain(getattr(owner, name)) for name in names}


def fitted(state: Any, template: Template, where: str) -> dict[str, Any]:
    """Return the values of attributes that :func:`saved` has returned, with arrays of their own.

    :param where: whose attributes they are, for the error
    :raises StateError: an attribute is missing, unknown, or has a value of the wrong type or shape
    """
    values: dict[str, Any] = fit(state, template, where, _RULES)
    for name in [name for name, value in values.items() if isinstance(value, torch.Tensor)]:
        # In its own precision, which changes between the steps of some environments.
        values[name] = np.array(state[name].cpu().numpy())[()]
    if values.get("_np_random") is not None:
        values["_np_random"] = generator_from_state(values["_np_random"], f"{where}['_np_random']")
    return values


def assign(owner: object, values: Mapping[str, Any]) -> None:
    """Set attributes of ``owner`` to values that :func:`fitted` has returned."""
    for name, value in values.items():
        is_list = isinstance(value, np.ndarray) and isinstance(getattr(owner, name, None), list)
        setattr(owner, name, value.tolist() if is_list else value)


def _plain(value: Any) -> StateValue:
    if isinstance(value, np.random.Generator):
        return generator_state(value)
    if isinstance(value, list):
        return torch.tensor(value, dtype=torch.float64)
    if isinstance(value, np.bool_ | np.integer):
        return value.item()
    if isinstance(value, np.ndarray | np.floating | tuple):
        return torch.from_numpy(np.array(value))
    return value  # type: ignore[no-any-return]


@runtime_checkable
class SupportsState(Protocol):
    """An object that gives its state as plain values and takes it back exactly.

    An environment answers for itself. A wrapper answers for itself alone, not for what it wraps (return ``{}`` if it
    keeps nothing); put :class:`ResumableEnv` outside it, which asks every layer.
    """

    def get_state(self) -> StateDict:
        """Return everything that the next steps and resets depend on: tensors, Python numbers, strs, lists, dicts."""
        ...

    def set_state(self, state: StateDict) -> None:
        """Continue exactly where ``state`` was taken, also in an object that was never reset.

        :raises StateError: ``state`` does not fit; nothing was changed
        """
        ...


class ResumableEnv(gym.Wrapper[Any, Any, Any, Any]):
    """Gives an environment an exact ``get_state``/``set_state``; steps and resets pass through unchanged.

    Covered are CartPole, Pendulum, MountainCar, MountainCarContinuous and Acrobot, with the wrappers that
    ``gym.make`` and Stable-Baselines3 put around them (TimeLimit, OrderEnforcing, PassiveEnvChecker, Monitor), and any
    environment or wrapper that is itself a :class:`SupportsState`. Put it outermost; ``make_vec_env(...,
    wrapper_class=ResumableEnv)`` does. Part of the state are physics, episode counters and the random generator; not
    part are settings, rendering, generators of spaces and worker processes, the clock and Monitor's past episodes.

    :param env: the environment, wrapped as it will be used
    :raises SettingError: a layer of ``env`` is unknown and does not answer for itself
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        for layer in _layers_of(env):
            if type(layer) not in LAYERS and not answers_itself(layer):
                kind, name = "wrapper" if isinstance(layer, gym.Wrapper) else "environment", type(layer).__name__
                raise SettingError(
                    "env",
                    f"ResumableEnv does not know what the {kind} {name} keeps between steps, so training could not "
                    f"resume exactly; implement get_state() and set_state(state) in {name} "
                    "(rlcore.envs.resumable.SupportsState; return {} if it keeps nothing)",
                )
        super().__init__(env)

    def step(self, action: Any) -> Any:
        """Take a step; ``is_stepping`` stays True where an exception leaves it half done."""
        self.is_stepping = True
        result = self.env.step(action)
        self.is_stepping = False
        return result

    def get_state(self) -> StateDict:
        """Return the state of every layer, from the outside in.

        Keys: ``environment`` (class name), ``id`` (of the registry, or None), ``arguments`` (numbers, texts and bools
        that the constructor was given) and ``layers``, a list of ``{"layer": label, "state": {attribute: value}}``.
        Arrays are tensors of their dtype; generators plain ints.
        """
        layers = _layers_of(self.env)
        return {
            **_identity(layers[-1]),
            "layers": [{"layer": _label(layer), "state": _layer_state(layer)} for layer in layers],
        }

    def set_state(self, state: StateDict) -> None:
        """Continue bit-exactly where ``state`` was taken; the environment need not have been reset before.

        :param state: what :meth:`get_state` returned, of the same environment in the same wrappers
        :raises StateError: another environment, other wrappers, or a damaged state. Nothing was changed, unless a layer
            with a ``set_state`` of its own refused: then reset the environment
        """
        layers = _layers_of(self.env)
        own = _identity(layers[-1])
        form = {**own, "layers": [{"layer": _label(layer), "state": None} for layer in layers]}
        require_like(state, form, _described)
        same = dict.fromkeys(("environment", "id", "layer", *own["arguments"]), SAME)  # type: ignore[misc]
        entries = fit(state, form, "the state of an environment", {**same, "state": FREE})["layers"]
        known: list[tuple[object, dict[str, Any]]] = []
        others: list[tuple[Any, StateDict]] = []
        for layer, entry in zip(layers, entries, strict=True):
            if type(layer) in LAYERS:
                known.append((layer, fitted(entry["state"], LAYERS[type(layer)], entry["layer"])))
            else:
                others.append((layer, entry["state"]))
        for target, given in others:
            target.set_state(given)
        for target, values in known:
            assign(target, values)

    def try_set_state(self, state: StateDict) -> str | None:
        """Like :meth:`set_state`, but returns the error's text: in a worker process an exception ends the worker."""
        try:
            with unusable("the state"):
                self.set_state(state)
        except StateError as error:
            return str(error)
        return None


def require_like(state: Any, own: Any, describe: Callable[[Any], str]) -> None:
    """Raise StateError for the state of something that was built in another way, if it is not damaged."""
    with suppress(LookupError, TypeError, AttributeError):
        if (theirs := describe(state)) != (mine := describe(own)):
            raise StateError(
                f"the run had {quoted(theirs, 200)}, and this is {mine}; build the environments as for the run"
            )


def _described(state: Any) -> str:
    given = ", ".join(f"{name}={value!r}" for name, value in state["arguments"].items())
    return f"{' of '.join(entry['layer'] for entry in state['layers'])}({state['id']}{given and f', {given}'})"


def _layers_of(env: gym.Env[Any, Any]) -> list[gym.Env[Any, Any]]:
    """Return ``env``, what it wraps, and so on to the layer that answers for all within; ResumableEnv adds nothing."""
    layers = [env]
    while isinstance(layers[-1], gym.Wrapper) and not getattr(type(layers[-1]), "answers_for_all", False):
        layers.append(layers[-1].env)
    return [layer for layer in layers if type(layer) is not ResumableEnv]


def answers_itself(layer: object) -> bool:
    """Return whether a class gives the state of its objects, rather than that of what they wrap."""
    kind = type(layer)
    return issubclass(kind, SupportsState) and kind.get_state is not ResumableEnv.get_state


def _layer_state(layer: Any) -> StateDict:
    template = LAYERS.get(type(layer))
    state: StateDict = layer.get_state() if template is None else saved(layer, template)
    return state


def _label(layer: gym.Env[Any, Any]) -> str:
    """Return what a layer must have in common with the one that its state was taken from."""
    limit = f"({layer._max_episode_steps})" if type(layer) is TimeLimit else ""
    return f"{type(layer).__name__}{limit}"


def _identity(env: gym.Env[Any, Any]) -> StateDict:
    """Return what the innermost layer is and was made with; how it is rendered changes nothing in it."""
    spec = env.unwrapped.spec
    arguments: StateDict = {
        name: value
        for name, value in ({} if spec is None else spec.kwargs).items()
        if name != "render_mode" and isinstance(value, bool | int | float | str)
    }
    return {"environment": type(env).__name__, "id": None if spec is None else spec.id, "arguments": arguments}
