"""Environments whose state can be taken and put back exactly, so that a resumed training continues mid-episode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import gymnasium as gym
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

from rlcore.errors import SettingError, StateError
from rlcore.state.fields import (
    Change,
    Field,
    apply_changes,
    counter_field,
    emptied_field,
    flag_field,
    float_list_field,
    generator_field,
    plan_changes,
    read_fields,
    scalar_field,
    tensor_field,
)
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


_RANDOM_FIELDS = (generator_field("_np_random"), counter_field("_np_random_seed", optional=True, minimum=-1))


def _physics(size: int) -> tuple[Field, ...]:
    return (tensor_field("state", (size,), optional=True), *_RANDOM_FIELDS)


# The keys are exact types: a subclass may keep more, so it has to answer for itself.
_LAYERS: Mapping[type, tuple[Field, ...]] = {
    CartPoleEnv: (*_physics(4), counter_field("steps_beyond_terminated", optional=True)),
    PendulumEnv: (*_physics(2), scalar_field("last_u")),
    MountainCarEnv: _physics(2),
    Continuous_MountainCarEnv: _physics(2),
    AcrobotEnv: _physics(4),
    TimeLimit: (counter_field("_elapsed_steps", optional=True),),
    OrderEnforcing: (flag_field("_has_reset"),),
    # A restored environment steps without the reset that the checker waits for: its one-time checks count as done.
    PassiveEnvChecker: (
        flag_field("checked_reset"),
        flag_field("checked_step", source="checked_reset"),
        flag_field("checked_data_reuse", source="checked_reset"),
        emptied_field("_previous_data"),
    ),
    Monitor: (float_list_field("rewards"), flag_field("needs_reset"), counter_field("total_steps")),
    ClipAction: (),
    FlattenObservation: (),
    RescaleAction: (),
    RescaleObservation: (),
}
KNOWN_LAYERS = frozenset(layer.__name__ for layer in _LAYERS)
MONITOR_FIELDS = _LAYERS[Monitor]
CARTPOLE_FIELDS = _LAYERS[CartPoleEnv]
PENDULUM_FIELDS = _LAYERS[PendulumEnv]


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
            "environment": type(self.unwrapped).__name__,
            "id": _registered_id(self.unwrapped),
            "arguments": _arguments(self.unwrapped),
            "layers": [{"layer": _label(layer), "state": _layer_state(layer)} for layer in _layers_of(self.env)],
        }

    def set_state(self, state: StateDict) -> None:
        """Continue bit-exactly where ``state`` was taken; the environment need not have been reset before.

        :param state: what :meth:`get_state` returned, of the same environment in the same wrappers
        :raises StateError: another environment, other wrappers, or a damaged state; nothing was changed
        """
        changes, delegated = self._planned(state)
        _set_all([(layer, record) for layer, record in delegated])
        apply_changes(changes)

    def try_set_state(self, state: StateDict) -> str | None:
        """Like :meth:`set_state`, but returns the error's text: in a worker process an exception ends the worker."""
        try:
            self.set_state(state)
        except StateError as error:
            return str(error)
        return None

    def _planned(self, state: StateDict) -> tuple[list[Change], list[tuple[SupportsState, StateDict]]]:
        """Check the whole state; return the assignments, and the layers that set theirs themselves."""
        self._require_same_environment(read_dict(state, "state"))
        layers = _layers_of(self.env)
        records = [
            read_dict(record, "state['layers']")
            for record in read_list(state.get("layers"), "state['layers']", len(layers))
        ]
        changes: list[Change] = []
        delegated: list[tuple[SupportsState, StateDict]] = []
        for layer, record in zip(layers, records, strict=True):
            label = _label(layer)
            if record.get("layer") != label:
                raise StateError(
                    f"the state has {describe(record.get('layer'))} where this environment has {label!r}; "
                    "build the environment with the same wrappers and limits as when the state was taken"
                )
            if isinstance(layer, SupportsState) and type(layer) not in _LAYERS:
                delegated.append((layer, read_dict(record.get("state"), label)))
            else:
                changes += plan_changes(layer, _LAYERS[type(layer)], record.get("state"), label)
        return changes, delegated

    def _require_same_environment(self, state: StateDict) -> None:
        here = (type(self.unwrapped).__name__, _registered_id(self.unwrapped), _arguments(self.unwrapped))
        there = (state.get("environment"), state.get("id"), state.get("arguments"))
        if there != here:
            raise StateError(
                f"the state is of the environment {describe(there[0])} (id {describe(there[1])}, arguments "
                f"{describe(there[2])}), this one is {here[0]!r} (id {here[1]!r}, arguments {here[2]!r}); "
                "restore it into the environment it was taken from"
            )


def _set_all(states: list[tuple[SupportsState, StateDict]]) -> None:
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
    if type(layer) in _LAYERS or isinstance(layer, SupportsState):
        return
    kind = "wrapper" if isinstance(layer, gym.Wrapper) else "environment"
    raise SettingError(
        "env",
        f"ResumableEnv does not know what the {kind} {type(layer).__name__} keeps between steps, so training could not "
        f"resume exactly; implement get_state() and set_state(state) in {type(layer).__name__} "
        "(rlcore.envs.SupportsState; return {} if it keeps nothing)",
    )


def _layer_state(layer: gym.Env[Any, Any]) -> StateDict:
    fields = _LAYERS.get(type(layer))
    if fields is not None:
        return read_fields(layer, fields)
    assert isinstance(layer, SupportsState)
    return layer.get_state()


def _label(layer: gym.Env[Any, Any]) -> str:
    """Return what a layer must have in common with the one that its state was taken from."""
    if type(layer) is TimeLimit:
        return f"TimeLimit({layer._max_episode_steps})"
    return type(layer).__name__


def _arguments(env: gym.Env[Any, Any]) -> StateDict:
    """What the environment was made with; how it is shown does not matter to what happens in it."""
    given = {} if env.spec is None else env.spec.kwargs
    return {name: value for name, value in given.items() if name != "render_mode" and isinstance(value, _PLAIN)}


def _registered_id(env: gym.Env[Any, Any]) -> str | None:
    return None if env.spec is None else env.spec.id
