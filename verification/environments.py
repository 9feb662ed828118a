"""Control tasks that show what the core is for: hidden velocities need memory, a shifting reward scale needs rescaling.

Importing this module registers them with Gymnasium. A worker process that has not imported it finds them as
``verification.environments:rlcore/...``; they were part of rlcore once, and keep the names that results have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv, PendulumEnv
from numpy.typing import ArrayLike, NDArray

from rlcore.envs.resumable import LAYERS, Template, assign, fitted, saved
from rlcore.errors import SettingError, StateError
from rlcore.types import StateDict, StateValue

Observation = NDArray[np.float32]
Step = tuple[Observation, float, bool, bool, dict[str, Any]]

_REGISTERED: Final = {
    "rlcore/MaskedVelocityCartPole-v0": ("MaskedVelocityCartPoleEnv", 500),
    "rlcore/MaskedVelocityPendulum-v0": ("MaskedVelocityPendulumEnv", 200),
    "rlcore/ShiftingRewardScale-v0": ("ShiftingRewardScaleEnv", 500),
}
"""Class and time limit by id; the limits are those of the tasks that they are made from."""


class _Saveable:
    """An environment that answers for its state (``SupportsState``) by a table of attributes."""

    template: ClassVar[Template]

    def get_state(self) -> StateDict:
        """Everything that the next steps and resets depend on."""
        return saved(self, self.template)

    def set_state(self, state: StateDict) -> None:
        """
        :raises StateError: if ``state`` does not fit; nothing was changed
        """
        assign(self, fitted(state, self.template, type(self).__name__))


class MaskedVelocityCartPoleEnv(_Saveable, CartPoleEnv):
    """CartPole-v1 without its two velocities, so that one observation does not tell where the pole is falling.

    Observation: cart position [m] and pole angle [rad], float32 of shape (2,). Actions and rewards are CartPole's.
    The task is the partially observed control problem of Wierstra et al. (2007), "Solving Deep Memory POMDPs with
    Recurrent Policy Gradients".
    """

    template = LAYERS[CartPoleEnv]
    _VISIBLE: Final = [0, 2]

    def __init__(self, sutton_barto_reward: bool = False, render_mode: str | None = None) -> None:
        super().__init__(sutton_barto_reward, render_mode)
        high = self.observation_space.high[self._VISIBLE]  # type: ignore[attr-defined]
        self.observation_space = spaces.Box(-high, high, dtype=np.float32)

    def step(self, action: Any) -> Step:
        """As in CartPole, without the velocities."""
        observation, reward, terminated, truncated, info = super().step(action)  # type: ignore[no-untyped-call]
        return observation[self._VISIBLE], float(reward), terminated, truncated, info

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """As in CartPole, without the velocities."""
        observation, info = super().reset(seed=seed, options=options)
        return observation[self._VISIBLE], info


class MaskedVelocityPendulumEnv(_Saveable, PendulumEnv):
    """Pendulum-v1 without its angular velocity, and with its torque in units of the largest torque.

    Observation: cosine and sine of the angle, float32 of shape (2,). Action: torque over 2 N m, in [-1, 1], as
    Stable-Baselines3 wants actions; rewards are Pendulum's.
    """

    template = LAYERS[PendulumEnv]

    def __init__(self, render_mode: str | None = None, g: float = 10.0) -> None:
        super().__init__(render_mode, g)
        self.observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def step(self, u: ArrayLike) -> Step:
        """
        :param u: torque in units of the largest one, shape (1,)
        """
        torque = np.asarray(u) * self.max_torque
        observation, reward, terminated, truncated, info = super().step(torque)  # type: ignore[no-untyped-call]
        return observation, float(reward), terminated, truncated, info

    def _get_obs(self) -> Observation:
        observation: Observation = super()._get_obs()[:2]  # type: ignore[no-untyped-call]
        return observation


class ShiftingRewardScaleEnv(_Saveable, CartPoleEnv):
    """CartPole-v1 whose rewards are multiplied by a factor from a given step of the environment's life on.

    What is optimal never changes, only the scale of the returns does: a critic has to follow it (van Hasselt et al.
    2016, "Learning values across many orders of magnitude"). The life counts every step since construction, over
    episodes; a reset does not turn it back. The factors multiply, so (..., 100.0) then (..., 0.01) comes back to 1.
    The bounds of the velocities are the largest float32 instead of infinity.

    :param shifts: pairs (step, factor): a whole number of at least 0, each larger than the one before, and a finite
        factor above 0
    :raises SettingError: for shifts of another kind
    """

    template: ClassVar[Template] = {**LAYERS[CartPoleEnv], "life_steps": 0}

    def __init__(
        self,
        shifts: Sequence[Sequence[float]] = ((10_000, 100.0), (20_000, 0.01)),
        sutton_barto_reward: bool = False,
        render_mode: str | None = None,
    ) -> None:
        self.shifts = _checked_shifts(shifts)
        self.life_steps = 0
        super().__init__(sutton_barto_reward, render_mode)
        high = np.nan_to_num(self.observation_space.high)  # type: ignore[attr-defined]
        self.observation_space = spaces.Box(-high, high, dtype=np.float32)

    @property
    def reward_scale(self) -> float:
        """What the next reward is multiplied by."""
        return math.prod(factor for step, factor in self.shifts if step <= self.life_steps)

    def step(self, action: Any) -> Step:
        """As in CartPole, with the reward on its present scale."""
        observation, reward, terminated, truncated, info = super().step(action)  # type: ignore[no-untyped-call]
        scaled = self.reward_scale * float(reward)
        self.life_steps += 1
        return observation, scaled, terminated, truncated, info

    def get_state(self) -> StateDict:
        """Everything that the next steps and resets depend on, and the shifts, which must be the same ones."""
        return {**super().get_state(), "shifts": self._plain_shifts()}

    def set_state(self, state: StateDict) -> None:
        """
        :raises StateError: if ``state`` does not fit or is of other shifts; nothing was changed
        """
        rest = dict(state)
        shifts = rest.pop("shifts", None)
        own = self._plain_shifts()
        if repr(shifts) != repr(own):
            raise StateError(
                f"the state is of the shifts {shifts!r:.80}, this environment has {own!r}; make it with the same shifts"
            )
        super().set_state(rest)

    def _plain_shifts(self) -> list[StateValue]:
        return [[step, factor] for step, factor in self.shifts]


def _checked_shifts(shifts: object) -> tuple[tuple[int, float], ...]:
    checked: list[tuple[int, float]] = []
    pairs: Sequence[Any] = shifts if isinstance(shifts, list | tuple) else [shifts]
    for pair in pairs:
        previous = checked[-1][0] if checked else -1
        if not _is_shift(pair, previous):
            raise SettingError(
                "shifts",
                f"shifts={shifts!r} cannot be used: {pair!r} is no pair of a step (a whole number above {previous}) "
                "and a factor (a finite number above 0); give pairs like [[10000, 100.0], [20000, 0.01]]",
            )
        checked.append((int(pair[0]), float(pair[1])))
    return tuple(checked)


def _is_shift(pair: Any, previous: int) -> bool:
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        return False
    step, factor = pair
    whole = isinstance(step, int) and not isinstance(step, bool) and step > previous
    number = isinstance(factor, int | float) and not isinstance(factor, bool)
    return whole and number and math.isfinite(factor) and factor > 0


for _id, (_name, _limit) in _REGISTERED.items():
    if _id not in gym.registry:
        gym.register(_id, entry_point=f"{__name__}:{_name}", max_episode_steps=_limit)
