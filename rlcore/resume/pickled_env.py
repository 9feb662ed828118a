"""Environments that have no state of their own form: their state is a pickle, for those who trust it."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.utils import EzPickle

from rlcore.checkpoint.refusal import unusable
from rlcore.errors import SettingError, StateError
from rlcore.resume.innermost_env import InnermostEnv
from rlcore.state.schema import describe, read_record
from rlcore.types import StateDict


class PickledEnv(InnermostEnv):
    """Gives any environment that can be pickled a state, for use inside of :class:`rlcore.ResumableEnv`.

    ``ResumableEnv(PickledEnv(env))``; ``env`` has all wrappers that it needs, and is not seen from outside as a layer.
    **Who uses it trusts the files that are loaded: restoring a state executes what the pickle in it names.** Prefer
    ``get_state`` and ``set_state`` where the environment is your own.

    :param env: its pickle has to hold its whole state. That of a simulator in compiled code often does not, without an
        error; ``rlverify check --check environment_can_be_copied --check resume_is_exact`` tells
    :raises SettingError: a layer of ``env`` is a gymnasium.utils.EzPickle, as the environments of MuJoCo and Atari are:
        its pickle holds the arguments of its constructor instead of its state
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        for layer in _layers_from(env):
            if isinstance(layer, EzPickle) and type(layer).__getstate__ is EzPickle.__getstate__:
                name = type(layer).__name__
                raise SettingError(
                    "env",
                    f"a pickle of {name} holds the arguments of its constructor and not its state, so that no training "
                    f"could continue exactly; implement get_state() and set_state(state) in {name}",
                )
        super().__init__(env)

    def get_state(self) -> StateDict:
        """Return the pickle, as a tensor of bytes.

        :raises StateError: the environment cannot be pickled
        """
        try:
            content = pickle.dumps(self._inner, protocol=4)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise StateError(
                f"{type(self._inner.unwrapped).__name__} cannot be pickled: {error}; implement get_state() and "
                "set_state(state) in it"
            ) from error
        return {"pickle": torch.from_numpy(np.frombuffer(content, np.uint8).copy())}

    def set_state(self, state: StateDict) -> None:
        """Continue with the environment of a pickle; this executes what it names.

        :raises StateError: ``state`` holds no pickle of the same classes; the environment is unchanged
        """
        stored = read_record(state, "state", ("pickle",))["pickle"]
        if not isinstance(stored, torch.Tensor) or stored.dtype != torch.uint8 or stored.dim() != 1:
            raise StateError(f"state['pickle'] is no tensor of bytes but {describe(stored)}")
        with unusable("state['pickle']"):
            found = pickle.loads(stored.numpy().tobytes())  # noqa: S301  # whoever uses this class trusts it
        before, here, there = self._inner.unwrapped, _names(self._inner), _names(found)
        if there != here:
            raise StateError(f"the state is of {there}, and this environment is {here}; build it as it was")
        self._inner = found
        # A part of the environment may draw from a space that the model has as well.
        base = found.unwrapped
        base.observation_space, base.action_space = before.observation_space, before.action_space


def _names(env: Any) -> str:
    """The classes of all layers with their modules, from the outside in."""
    return "(".join(f"{type(layer).__module__}.{type(layer).__qualname__}" for layer in _layers_from(env))


def _layers_from(env: Any) -> list[Any]:
    layers = [env]
    while isinstance(layers[-1], gym.Wrapper):
        layers.append(layers[-1].env)
    return layers
