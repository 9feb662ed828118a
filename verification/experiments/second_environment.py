"""A second environment, so that what is measured in CartPole is measured where rewards and dynamics are others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import TimeLimit
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv

from rlcore import ResumableEnv
from verification.probes.make import Make

PUSH: Final = 0.06
"""What an action moves the position by, to the left or to the right."""
GUST: Final = 0.02
"""Standard deviation of the change of the wind in one step."""
CALM: Final = 0.95
"""What is left of the wind after one step."""
LONGEST: Final = 200


class Drift(gym.Env[Any, Any]):
    """Stay near the middle of a line while a wind that changes slowly blows along it.

    Observation: position in [-1, 1] and wind, shape (2,). Actions: 0 pushes to the left, 1 to the right. Reward: 1 less
    the distance from the middle. An episode ends when the position leaves the line.
    """

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.position = self.wind = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin anywhere in the middle half of the line."""
        super().reset(seed=seed, options=options)
        self.position, self.wind = float(self.np_random.uniform(-0.5, 0.5)), 0.0
        return self._seen(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Push, and let the wind blow."""
        self.wind = CALM * self.wind + GUST * float(self.np_random.standard_normal())
        self.position += PUSH * (2 * int(action) - 1) + self.wind
        ended = abs(self.position) > 1.0
        return self._seen(), max(0.0, 1.0 - abs(self.position)), ended, False, {}

    def _seen(self) -> Any:
        return np.array([self.position, self.wind], dtype=np.float32)

    def get_state(self) -> dict[str, Any]:
        """Position, wind and generator."""
        generator = self.np_random.bit_generator.state
        inner = {name: int(value) for name, value in generator["state"].items()}
        return {
            "position": self.position,
            "wind": self.wind,
            "generator": {**{name: str(value) for name, value in inner.items()}, "kind": generator["bit_generator"]},
            "half": [int(generator["has_uint32"]), int(generator["uinteger"])],
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue where ``state`` was taken."""
        self.position, self.wind = state["position"], state["wind"]
        words = dict(state["generator"])
        self.np_random.bit_generator.state = {
            "bit_generator": words.pop("kind"),
            "state": {name: int(value) for name, value in words.items()},
            "has_uint32": state["half"][0],
            "uinteger": state["half"][1],
        }


@dataclass(frozen=True)
class MakeDrift(Make):
    """Makes what `Make` makes, in `Drift`."""

    def envs(self, seed: int, env_id: str = "Drift", n_envs: int = 3) -> VecEnv:
        """Environments whose state can be saved."""
        assert env_id == "Drift", env_id
        envs: VecEnv = make_vec_env(
            lambda: TimeLimit(Drift(), LONGEST), n_envs=n_envs, seed=seed, wrapper_class=ResumableEnv
        )
        return envs


def in_drift(make: Make) -> MakeDrift:
    """The same components in the second environment."""
    return MakeDrift(make.algorithm, make.optimizers, make.scaler)
