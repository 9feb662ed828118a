"""Environments whose state can be taken and put back exactly, so that a resumed training continues mid-episode."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import gymnasium as gym
from gymnasium.wrappers import TimeLimit

from rlcore.envs.attributes import LAYERS, assign, checked, saved
from rlcore.errors import SettingError, StateError
from rlcore.state.schema import describe, read_dict, read_list
from rlcore.types import StateDict


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


_PLAIN = (bool, int, float, str)


class ResumableEnv(gym.Wrapper[Any, Any, Any, Any]):
    """Gives an environment an exact ``get_state``/``set_state``; steps and resets pass through unchanged.

    Covered are CartPole, Pendulum, MountainCar, MountainCarContinuous and Acrobot, with the wrappers that
    ``gym.make`` and Stable-Baselines3 put around them (TimeLimit, OrderEnforcing, PassiveEnvChecker, Monitor), and any
    environment or wrapper that is itself a :class:`SupportsState`. Put it outermost; ``make_vec_env(...,
    wrapper_class=ResumableEnv)`` does. Part of the state are physics, episode counters and the random generator; not
    part are settings, rendering, the generators of the spaces, the clock and the list of past episodes of Monitor.

    :param env: the environment, wrapped as it will be used
    :raises SettingError: a layer of ``env`` is unknown and does not answer for itself
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        for layer in _layers_of(env):
            _require_known(layer)
        super().__init__(env)

    def get_state(self) -> StateDict:
        """Return the state of every layer, from the outside in.

        Keys: ``environment`` (class name), ``id`` (of the registry, or None), ``arguments`` (numbers, texts and bools
        that the constructor was given) and ``layers``, a list of ``{"layer": label, "state": {attribute: value}}``.
        Arrays are tensors of their dtype; generators plain ints.
        """
        return {
            **_identity(self.unwrapped),
            "layers": [{"layer": _label(layer), "state": _layer_state(layer)} for layer in _layers_of(self.env)],
        }

    def set_state(self, state: StateDict) -> None:
        """Continue bit-exactly where ``state`` was taken; the environment need not have been reset before.

        :param state: what :meth:`get_state` returned, of the same environment in the same wrappers
        :raises StateError: another environment, other wrappers, or a damaged state; nothing was changed
        """
        _require_same(_identity(self.unwrapped), read_dict(state, "state"))
        layers = _layers_of(self.env)
        known: list[tuple[object, dict[str, Any]]] = []
        others: list[tuple[Any, StateDict]] = []
        for layer, entry in zip(layers, read_list(state.get("layers"), "state['layers']", len(layers)), strict=True):
            record, label = read_dict(entry, "state['layers']"), _label(layer)
            if record.get("layer") != label:
                raise StateError(
                    f"the state has {describe(record.get('layer'))} where this environment has {label!r}; "
                    "build the environment with the same wrappers and limits as when the state was taken"
                )
            if type(layer) in LAYERS:
                known.append((layer, checked(record.get("state"), LAYERS[type(layer)], label)))
            else:
                others.append((layer, read_dict(record.get("state"), label)))
        _set_all(others)
        for target, values in known:
            assign(target, values)

    def try_set_state(self, state: StateDict) -> str | None:
        """Like :meth:`set_state`, but returns the error's text: in a worker process an exception ends the worker."""
        try:
            self.set_state(state)
        except StateError as error:
            return str(error)
        return None


def _set_all(states: list[tuple[Any, StateDict]]) -> None:
    """Set every state or none: a later refusal puts the earlier ones back.

    The last, the environment itself, is not asked for its state: it may have none before its first reset.
    """
    before = [(target, target.get_state()) for target, _ in states[:-1]]
    for position, (target, state) in enumerate(states):
        try:
            target.set_state(state)
        except StateError:
            for changed, old in before[:position]:
                changed.set_state(old)
            raise


def _layers_of(env: gym.Env[Any, Any]) -> list[gym.Env[Any, Any]]:
    """Return ``env``, what it wraps, and so on to the bare environment; an inner ResumableEnv adds nothing."""
    layers = []
    while isinstance(env, gym.Wrapper):
        layers.append(env)
        env = env.env
    return [layer for layer in [*layers, env] if not isinstance(layer, ResumableEnv)]


def _require_known(layer: gym.Env[Any, Any]) -> None:
    if type(layer) in LAYERS or isinstance(layer, SupportsState):
        return
    kind = "wrapper" if isinstance(layer, gym.Wrapper) else "environment"
    raise SettingError(
        "env",
        f"ResumableEnv does not know what the {kind} {type(layer).__name__} keeps between steps, so training could not "
        f"resume exactly; implement get_state() and set_state(state) in {type(layer).__name__} "
        "(rlcore.envs.SupportsState; return {} if it keeps nothing)",
    )


def _layer_state(layer: Any) -> StateDict:
    readers = LAYERS.get(type(layer))
    state: StateDict = layer.get_state() if readers is None else saved(layer, readers)
    return state


def _label(layer: gym.Env[Any, Any]) -> str:
    """Return what a layer must have in common with the one that its state was taken from."""
    if type(layer) is TimeLimit:
        return f"TimeLimit({layer._max_episode_steps})"
    return type(layer).__name__


def _identity(env: gym.Env[Any, Any]) -> StateDict:
    """Return what an environment is and what it was made with; how it is rendered changes nothing in it."""
    given = {} if env.spec is None else env.spec.kwargs
    arguments: StateDict = {
        name: value for name, value in given.items() if name != "render_mode" and isinstance(value, _PLAIN)
    }
    return {"environment": type(env).__name__, "id": None if env.spec is None else env.spec.id, "arguments": arguments}


def _require_same(own: StateDict, state: StateDict) -> None:
    found = {name: state.get(name) for name in own}
    if found != own:
        raise StateError(
            f"the state is of an environment with {_shown(found)}, this one has {_shown(own)}; restore it into the "
            "environment that it was taken from"
        )


def _shown(identity: StateDict) -> str:
    return " ".join(f"{name}={value!r:.60}" for name, value in identity.items())
