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

from rlcore.checkpoint.container import unusable
from rlcore.envs.resumable import GENERATOR, ResumableEnv, assign, fitted, saved
from rlcore.errors import SettingError, StateError
from rlcore.state.tree import ANY_LENGTH, FREE, Rule, fit
from rlcore.types import StateDict

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


class PickledEnv(gym.Wrapper[Any, Any, Any, Any]):
    """Gives any environment that can be pickled a state, for use inside of :class:`rlcore.ResumableEnv`.

    ``ResumableEnv(PickledEnv(env))``; ``env`` has all wrappers that it needs.
    **Who uses it trusts the files that are loaded: restoring a state executes what the pickle in it names.** Prefer
    ``get_state`` and ``set_state`` where the environment is your own.

    :param env: its pickle has to hold its whole state. That of a simulator in compiled code often does not, without an
        error; ``rlverify check --check environment_can_be_copied --check resume_is_exact`` tells
    :raises SettingError: a layer of ``env`` is a gymnasium.utils.EzPickle, as the environments of MuJoCo and Atari are:
        its pickle holds the arguments of its constructor instead of its state
    """

    answers_for_all = True

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
            content = pickle.dumps(self.env, protocol=4)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise StateError(
                f"{type(self.unwrapped).__name__} cannot be pickled: {error}; implement get_state() and "
                "set_state(state) in it"
            ) from error
        return {"pickle": torch.from_numpy(np.frombuffer(content, np.uint8).copy())}

    def set_state(self, state: StateDict) -> None:
        """Continue with the environment of a pickle; this executes what it names.

        :raises StateError: ``state`` holds no pickle of the same classes; the environment is unchanged
        """
        form: StateDict = {"pickle": torch.zeros(0, dtype=torch.uint8)}
        content = fit(state, form, "state", {"pickle": ANY_LENGTH})["pickle"].numpy().tobytes()
        with unusable("state['pickle']"):
            found = pickle.loads(content)  # noqa: S301  # whoever uses this class trusts it
        own, there = ([type(layer) for layer in _layers_from(env)] for env in (self.env, found))
        if there != own:
            raise StateError(f"the state is of {there}, and this environment is {own}; build it as it was")
        # The model has the spaces of the environment, and both draw from them: the same objects, where they stood then.
        for before, layer in zip(_layers_from(self.env), _layers_from(found), strict=True):
            for name in ("observation_space", "action_space"):
                if getattr(layer, f"_{name}", layer) is not None:  # else a wrapper that has none of its own
                    own = getattr(before, name)
                    vars(own).update(vars(getattr(layer, name)))
                    setattr(layer, name, own)
        self.env = found


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
        ``env`` is unknown
    """
    base: Any = env.unwrapped
    name = type(base).__name__
    if not hasattr(base, "data") or not hasattr(base, "model"):
        raise SettingError("env", f"{name} is no environment of MuJoCo, as it has no `data` and `model`")
    if not type(base).__module__.startswith("gymnasium.envs.mujoco.") and not keeps_nothing_else:
        raise SettingError(
            "env",
            f"{name} is not one of gymnasium.envs.mujoco and may keep more than its simulation; if it does not, say so "
            "with keeps_nothing_else=True",
        )
    *wrappers, _ = _layers_from(env)
    if wrappers:
        wrappers[-1].env = SimulatedEnv(base)
    return ResumableEnv(env if wrappers else SimulatedEnv(base))


class SimulatedEnv(gym.Wrapper[Any, Any, Any, Any]):
    """An environment of MuJoCo, with the fields of its simulation as its state, which is what ``mj_copyData`` copies.

    Those are the arrays that have one size from the start, the time, and the random generator. What has a size that
    changes, as contacts have, is computed again in every step. MuJoCo's ``mjSTATE_INTEGRATION`` is less and not enough:
    rewards of Humanoid and Ant read positions that the last step has left behind.
    """

    answers_for_all = True

    def get_state(self) -> StateDict:
        """Return ``arrays`` by name, ``time`` in seconds, and ``generator``."""
        base: Any = self.unwrapped
        arrays: StateDict = {name: torch.from_numpy(each.copy()) for name, each in self._arrays().items()}
        return {"arrays": arrays, "time": base.data.time, "generator": saved(base, GENERATOR)}

    def set_state(self, state: StateDict) -> None:
        """Continue exactly where ``state`` was taken.

        :raises StateError: a damaged state, or one of another model or version of MuJoCo; nothing was changed
        """
        base: Any = self.unwrapped
        arrays = self._arrays()
        rules = {**dict.fromkeys(arrays, Rule(finite=False)), "generator": FREE}
        record = fit(state, {**self.get_state(), "generator": None}, "state", rules)
        generator = fitted(record["generator"], GENERATOR, "state['generator']")
        for name, array in arrays.items():
            array[...] = record["arrays"][name].numpy()
        base.data.time = record["time"]
        assign(base, generator)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the simulation that have a size from its start on, by name."""
        base: Any = self.unwrapped
        fresh = type(base.data)(base.model)
        found = ((name, getattr(fresh, name, None)) for name in dir(fresh) if not name.startswith(_NO_STATE))
        return {name: getattr(base.data, name) for name, each in found if isinstance(each, np.ndarray) and each.size}
