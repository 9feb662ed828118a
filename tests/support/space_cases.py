"""Combinations of spaces as data, and an environment that has any of them."""

from __future__ import annotations

import copy
import zlib
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rlcore.errors import StateError
from rlcore.state.training import generator_from_state, generator_state
from rlcore.types import StateDict


class Echo(gym.Env[Any, Any]):
    """Observations are drawn by a number that every action so far has changed; an episode lasts five steps."""

    def __init__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> None:
        self.observation_space = copy.deepcopy(observation_space)
        self.action_space = action_space
        self.number = self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.number, self.steps = int(self.np_random.integers(2**31)), 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        self.number = (31 * self.number + zlib.crc32(np.asarray(action).tobytes())) % 2**31
        self.steps += 1
        over, late = self.steps == 5, self.number % 2 == 0
        return self._observation(), float(np.mean(action)), over and not late, over and late, {}

    def _observation(self) -> Any:
        self.observation_space.seed(self.number)
        return self.observation_space.sample()

    def get_state(self) -> StateDict:
        return {"number": self.number, "steps": self.steps, "generator": generator_state(self.np_random)}

    def set_state(self, state: StateDict) -> None:
        number, steps = state.get("number"), state.get("steps")
        if not (isinstance(number, int) and isinstance(steps, int)):
            raise StateError(f"number {number!r} and steps {steps!r} must be integers")
        self.np_random = generator_from_state(state.get("generator"), "generator")
        self.number, self.steps = number, steps


@dataclass(frozen=True)
class SpaceCase:
    """One observation space and one action space, and the policy for them."""

    observations: spaces.Space[Any]
    actions: spaces.Space[Any]
    policy: str = "MlpLstmPolicy"
    policy_kwargs: dict[str, Any] = field(default_factory=dict)

    def env(self) -> Echo:
        return Echo(self.observations, self.actions)


BOX, TWO = spaces.Box(-1, 1, (3,)), spaces.Discrete(2)
IMAGE = spaces.Box(0, 255, (36, 40, 3), np.uint8)
EVERYTHING = spaces.Dict(
    {
        "place": spaces.Box(-2, 2, (2, 2)),
        "kind": spaces.Discrete(3),
        "parts": spaces.MultiDiscrete([2, 4]),
        "mask": spaces.MultiBinary(3),
        "counter": spaces.Box(0, 60_000, (2,), np.uint16),
    }
)
SMALL_CNN = {"features_extractor_kwargs": {"features_dim": 4}}

CASES: dict[str, SpaceCase] = {
    "a number to one of three": SpaceCase(spaces.Discrete(4), spaces.Discrete(3)),
    "float64 to one of three": SpaceCase(spaces.Box(-1, 1, (2,), np.float64), spaces.Discrete(3)),
    "numbers to several choices": SpaceCase(spaces.MultiDiscrete([3, 2]), spaces.MultiDiscrete([3, 2, 4])),
    "a matrix to several choices": SpaceCase(spaces.Box(-1, 1, (2, 3)), spaces.MultiDiscrete([3, 2])),
    "switches to switches": SpaceCase(spaces.MultiBinary(3), spaces.MultiBinary(4)),
    "a matrix of switches to a force": SpaceCase(spaces.MultiBinary((2, 2)), spaces.Box(-2, 1, (2,))),
    "counters to a matrix of forces": SpaceCase(
        spaces.Box(0, 60_000, (3,), np.uint16), spaces.Box(np.float64(0), 3, (2, 2), np.float64)
    ),
    "a Dict to several choices": SpaceCase(EVERYTHING, spaces.MultiDiscrete([3, 2]), "MultiInputLstmPolicy"),
    "a Dict to switches, features apart": SpaceCase(
        EVERYTHING, spaces.MultiBinary(2), "MultiInputLstmPolicy", {"share_features_extractor": False}
    ),
    "an image to one of two": SpaceCase(IMAGE, TWO, "CnnLstmPolicy", SMALL_CNN),
    "a Dict with an image to one of two": SpaceCase(
        spaces.Dict({"view": IMAGE, "speed": BOX}),
        TWO,
        "MultiInputLstmPolicy",
        {"features_extractor_kwargs": {"cnn_output_dim": 4}},
    ),
    "one LSTM for all": SpaceCase(
        EVERYTHING, TWO, "MultiInputLstmPolicy", {"enable_critic_lstm": False, "shared_lstm": True}
    ),
}

KEYED = "rlcore-tests/Keyed-v0"
gym.register(KEYED, entry_point=lambda: Echo(EVERYTHING, spaces.MultiDiscrete([3, 2])))
