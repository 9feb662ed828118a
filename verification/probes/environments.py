"""Objects that are not environments, passed where one is expected."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from gymnasium import spaces

from rlverify import Observation, probe
from verification.probes.make import Make


class LooksLikeAnEnvironment:
    """Has the methods and spaces of an environment, but not its base class."""

    observation_space = spaces.Box(-1.0, 1.0, (4,))
    action_space = spaces.Discrete(2)

    def reset(self, **_: object) -> tuple[np.ndarray, dict[str, object]]:
        return np.zeros(4, dtype=np.float32), {}

    def step(self, _: object) -> tuple[np.ndarray, float, bool, bool, dict[str, object]]:
        return np.zeros(4, dtype=np.float32), 0.0, False, False, {}


@probe("foreign-environment-is-refused")
def foreign_environment_is_refused(make: Make, seed: int) -> Sequence[Observation]:
    """Pass objects that are not environments to the constructor and to set_env()."""
    model = make.model(seed)
    ways: dict[str, Callable[[object], object]] = {
        "the constructor": lambda env: make.algorithm("MlpLstmPolicy", env),  # type: ignore[arg-type]
        "set_env()": lambda env: model.set_env(env),  # type: ignore[arg-type]
    }
    foreign = {
        "an object with an environment's methods": LooksLikeAnEnvironment(),
        "a plain object": object(),
        "a class": int,
    }
    return [
        _refusal(f"{kind} passed to {way}", env, take) for kind, env in foreign.items() for way, take in ways.items()
    ]


def _refusal(symptom: str, env: object, take: Callable[[object], object]) -> Observation:
    expected = "ValueError that names the type and what is expected"
    try:
        take(env)
    except (ValueError, TypeError, AttributeError, AssertionError) as error:
        named = f"of type {type(env)}, not a Gymnasium environment" in str(error)
        holds = isinstance(error, ValueError) and named
        return Observation(symptom, expected, expected if holds else f"{type(error).__name__}: {error}", holds)
    return Observation(symptom, expected, "accepted", holds=False)
