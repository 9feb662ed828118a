"""Gives a state to environments that have none of their own: MuJoCo, whatever can be pickled, and action masks."""

from __future__ import annotations

import pickle
from typing import Any, Final

import gymnasium as gym
import numpy as np
import torch
from gymnasium.utils import EzPickle
from numpy.typing import NDArray
from sb3_contrib.common.wrappers import ActionMasker

from rlcore.checkpoint.refusal import unusable
from rlcore.envs.attributes import GENERATOR, assign, checked, saved
from rlcore.envs.resumable import ResumableEnv
from rlcore.errors import SettingError, StateError
from rlcore.state.schema import describe, read_dict, read_number, read_record
from rlcore.types import StateDict

_OWN = frozenset({"_inner", "observation_space", "action_space", "metadata", "render_mode", "spec"})
"""Attributes of an InnermostEnv itself."""
_NO_STATE: Final = ("_", "maxuse_")
"""Beginnings of the names in ``mjData`` that are no state: how much memory was in use, for one."""


class ResumableActionMasker(ActionMasker):
    """sb3-contrib's ActionMasker, which has no state of its own, for use inside of :class:`rlcore.ResumableEnv`.

    ``ResumableEnv(ResumableActionMasker(env, mask_function))``; the mask may depend on the environment's state only.
    """

    def get_state(self) -> StateDict:
        """Return nothing: the mask follows from the environment."""
        return {}

    def set_state(self, state: StateDict) -> None:
        """Do nothing."""


class InnermostEnv(gym.Env[Any, Any]):
    """Does everything as ``env`` does, of which :class:`rlcore.ResumableEnv` sees no layer; base of the classes below.

    Attributes that are not its own, such as ``difficulty`` or ``np_random``, are those of the environment.
    """

    _inner: gym.Env[Any, Any]

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        self._inner = env
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.metadata, self.render_mode, self.spec = env.metadata, env.render_mode, env.spec

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self._inner.get_wrapper_attr(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN:
            super().__setattr__(name, value)
        else:
            setattr(self._inner.unwrapped if hasattr(self._inner.unwrapped, name) else self._inner, name, value)

    @property
    def np_random(self) -> Any:
        """The generator of the environment."""
        return self._inner.unwrapped.np_random

    @np_random.setter
    def np_random(self, value: Any) -> None:
        self._inner.unwrapped.np_random = value

    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        """Set an attribute of the environment."""
        return self._inner.set_wrapper_attr(name, value, force=force)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment."""
        return self._inner.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment."""
        return self._inner.step(action)

    def render(self) -> Any:
        """Render the environment."""
        return self._inner.render()

    def close(self) -> None:
        """Close the environment."""
        self._inner.close()


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
    """Return the classes of all layers with their modules, from the outside in."""
    return "(".join(f"{type(layer).__module__}.{type(layer).__qualname__}" for layer in _layers_from(env))


def _layers_from(env: Any) -> list[Any]:
    layers = [env]
    while isinstance(layers[-1], gym.Wrapper):
        layers.append(layers[-1].env)
    return layers


def resumable_mujoco(env: gym.Env[Any, Any], *, keeps_nothing_else: bool = False) -> ResumableEnv:
    """Give an environment of MuJoCo an exact state: ``resumable_mujoco(gym.make("Humanoid-v5"))``.

    :param env: with all wrappers that it needs, which :class:`rlcore.ResumableEnv` has to know; it is changed
    :param keeps_nothing_else: that a class from outside ``gymnasium.envs.mujoco`` has no state but its simulation and
        its random generator, and does not change its ``MjModel``
    :raises SettingError: no environment of MuJoCo, a class from outside without ``keeps_nothing_else``, or a layer of
        ``env`` is unknown; ``env`` is unchanged
    """
    base: Any = env.unwrapped
    name = type(base).__name__
    if isinstance(base, SimulatedEnv):
        raise SettingError("env", "the environment is the result of resumable_mujoco() already; use it as it is")
    if not hasattr(base, "data") or not hasattr(base, "model"):
        raise SettingError("env", f"{name} is no environment of MuJoCo, as it has no `data` and `model`")
    if not type(base).__module__.startswith("gymnasium.envs.mujoco.") and not keeps_nothing_else:
        raise SettingError(
            "env",
            f"{name} is not one of gymnasium.envs.mujoco and may keep more than its simulation; if it does not, say so "
            "with keeps_nothing_else=True",
        )
    *wrappers, _ = _layers_from(env)
    if not wrappers:
        return ResumableEnv(SimulatedEnv(base))
    wrappers[-1].env = SimulatedEnv(base)
    try:
        return ResumableEnv(env)
    except SettingError:
        wrappers[-1].env = base
        raise


class SimulatedEnv(InnermostEnv):
    """An environment of MuJoCo, with the fields of its simulation as its state, which is what ``mj_copyData`` copies.

    Those are the arrays that have one size from the start, the time, and the random generator. What has a size that
    changes, as contacts have, is computed again in every step. MuJoCo's ``mjSTATE_INTEGRATION`` is less and not enough:
    rewards of Humanoid and Ant read positions that the last step has left behind.
    """

    def get_state(self) -> StateDict:
        """Return ``arrays`` by name, ``time`` in seconds, and ``generator``."""
        base: Any = self._inner
        arrays: StateDict = {name: torch.from_numpy(each.copy()) for name, each in self._arrays().items()}
        return {"arrays": arrays, "time": base.data.time, "generator": saved(base, GENERATOR)}

    def set_state(self, state: StateDict) -> None:
        """Continue exactly where ``state`` was taken.

        :raises StateError: a damaged state, or one of another model or version of MuJoCo; nothing was changed
        """
        record = read_record(state, "state", ("arrays", "time", "generator"))
        base: Any = self._inner
        own, given = self._arrays(), read_dict(record["arrays"], "state['arrays']")
        if set(own) != set(given):
            odd = sorted(set(own) ^ set(given))[0]
            raise StateError(f"state['arrays'] and this simulation differ in {odd!r}; use the same version of MuJoCo")
        values = {name: _content(given[name], array, name) for name, array in own.items()}
        time = read_number(record["time"], "state['time']")
        generator = checked(record["generator"], GENERATOR, "state['generator']")
        for name, array in own.items():
            array[...] = values[name]
        base.data.time = time
        assign(base, generator)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the simulation that have a size from its start on, by name."""
        base: Any = self._inner
        fresh = type(base.data)(base.model)
        found = ((name, getattr(fresh, name, None)) for name in dir(fresh) if not name.startswith(_NO_STATE))
        return {name: getattr(base.data, name) for name, each in found if isinstance(each, np.ndarray) and each.size}


def _content(value: object, array: NDArray[Any], name: str) -> NDArray[Any]:
    """Return the content of a tensor of an array's shape and type.

    :raises StateError: ``value`` is no such tensor
    """
    found = value.numpy() if isinstance(value, torch.Tensor) else None
    if found is None or found.shape != array.shape or found.dtype != array.dtype:
        raise StateError(f"state['arrays'][{name!r}] is no {array.dtype} of shape {array.shape} but {describe(value)}")
    return found
