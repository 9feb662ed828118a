"""Environments of MuJoCo: the fields of their simulation, which is what ``mj_copyData`` copies, as a state."""

from __future__ import annotations

from typing import Any, Final

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray

from rlcore.envs import ResumableEnv
from rlcore.errors import SettingError, StateError
from rlcore.resume.innermost_env import InnermostEnv
from rlcore.state.fields import apply_changes, counter_field, generator_field, plan_changes, read_fields
from rlcore.state.schema import describe, read_dict, read_number, read_record
from rlcore.types import StateDict

OURS: Final = "gymnasium.envs.mujoco."
"""Modules of the environments that keep nothing outside of the simulation and their generator."""
_UNUSED: Final = ("_", "maxuse_")
"""Beginnings of names of what is no state: how much memory was in use, for one."""
_GENERATOR: Final = (generator_field("_np_random"), counter_field("_np_random_seed", optional=True, minimum=-1))


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
    if not type(base).__module__.startswith(OURS) and not keeps_nothing_else:
        raise SettingError(
            "env",
            f"{name} is not one of gymnasium.envs.mujoco and may keep more than its simulation; if it does not, say so "
            "with keeps_nothing_else=True",
        )
    changed = _with_base(env, SimulatedEnv(base))
    try:
        return ResumableEnv(changed)
    except SettingError:
        _with_base(env, base)
        raise


def _with_base(env: gym.Env[Any, Any], base: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """The wrappers of an environment around another base."""
    if not isinstance(env, gym.Wrapper):
        return base
    env.env = _with_base(env.env, base)
    return env


class SimulatedEnv(InnermostEnv):
    """An environment of MuJoCo, with the fields of its simulation as its state.

    Those are the arrays that have one size from the start, the time, and the random generator. What has a size that
    changes, as contacts have, is computed again in every step. MuJoCo's ``mjSTATE_INTEGRATION`` is less and not enough:
    rewards of Humanoid and Ant read positions that the last step has left behind.
    """

    def get_state(self) -> StateDict:
        """Return ``arrays`` by name, ``time`` in seconds, and ``generator``."""
        arrays: StateDict = {name: torch.from_numpy(each.copy()) for name, each in self._arrays().items()}
        base: Any = self._inner
        return {"arrays": arrays, "time": base.data.time, "generator": read_fields(base, _GENERATOR)}

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
        values = {name: _of_kind(given[name], array, name) for name, array in own.items()}
        time = read_number(record["time"], "state['time']")
        changes = plan_changes(base, _GENERATOR, record["generator"], "state['generator']")
        for name, array in own.items():
            array[...] = values[name]
        base.data.time = time
        apply_changes(changes)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays of the simulation that have a size from its start on, by name."""
        base: Any = self._inner
        fresh = type(base.data)(base.model)
        found = ((name, getattr(fresh, name, None)) for name in dir(fresh) if not name.startswith(_UNUSED))
        return {name: getattr(base.data, name) for name, each in found if isinstance(each, np.ndarray) and each.size}


def _of_kind(value: object, array: NDArray[Any], name: str) -> NDArray[Any]:
    """The content of a tensor of an array's shape and type.

    :raises StateError: ``value`` is no such tensor
    """
    found = value.numpy() if isinstance(value, torch.Tensor) else None
    if found is None or found.shape != array.shape or found.dtype != array.dtype:
        raise StateError(f"state['arrays'][{name!r}] is no {array.dtype} of shape {array.shape} but {describe(value)}")
    return found
