"""Bug 3 of document 002: an environment that is none of Gymnasium's is refused before anything is built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rlcore import DistributionalPPO
from tests.support.training import differing, make_envs, make_model


class SimpleDummyEnv:
    """What the audited system's test had: methods and spaces, no base class."""

    observation_space = spaces.Box(-1.0, 1.0, (4,))
    action_space = spaces.Discrete(2)

    def reset(self, **_: Any) -> tuple[np.ndarray, dict[str, Any]]:
        return np.zeros(4, dtype=np.float32), {}

    def step(self, _: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.zeros(4, dtype=np.float32), 1.0, False, False, {}


class ProperDummyEnv(SimpleDummyEnv, gym.Env[Any, Any]):  # type: ignore[misc]
    """The same, mended."""


def refusal(env: object) -> str:
    name = f"{type(env).__module__}.{type(env).__qualname__}".removeprefix("builtins.")
    return rf"of type <class '{name}'>, not a Gymnasium environment"


FOREIGN = {
    "an object like one": SimpleDummyEnv(),
    "its class": SimpleDummyEnv,
    "a list of environments": [ProperDummyEnv()],
    "a function that makes one": ProperDummyEnv.__init__,
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_an_object_that_is_no_environment_is_refused_by_its_type(kind: str, tmp_path: Path) -> None:
    env: Any = FOREIGN[kind]
    with pytest.raises(ValueError, match=refusal(env)):
        DistributionalPPO("MlpLstmPolicy", env)
    model = make_model()
    model.save(tmp_path / "model.zip")
    with pytest.raises(ValueError, match=refusal(env)):
        DistributionalPPO.load(tmp_path / "model.zip", env=env, device="cpu")


def test_a_refused_environment_leaves_the_model_with_the_one_it_had() -> None:
    envs = make_envs()
    model = make_model(envs)
    before = model.get_parameters()
    with pytest.raises(ValueError, match="not a Gymnasium environment"):
        model.set_env(SimpleDummyEnv())  # type: ignore[arg-type]
    assert model.env is envs
    assert differing(before, model.get_parameters()) == []


def test_the_same_environment_derived_from_gymnasium_trains() -> None:
    model = make_model(ProperDummyEnv())
    model.learn(32)
    assert model.num_timesteps == 32
