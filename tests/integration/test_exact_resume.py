"""learn(T) cut after k updates, saved, loaded in a new process and resumed to T is learn(T), bit for bit."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from rlcore import DistributionalPPO, ResumableEnv, ResumeWarning, StateError
from tests.support import resume_run
from tests.support.space_cases import KEYED
from tests.support.training import differing, make_envs, make_model


@pytest.mark.parametrize(
    ("env_id", "settings"),
    [
        pytest.param("CartPole-v1", {}, marks=pytest.mark.slow),
        pytest.param("Pendulum-v1", {}, marks=pytest.mark.slow),
        pytest.param(KEYED, {}, marks=pytest.mark.slow),
        ("CartPole-v1", resume_run.ADAPTIVE),
    ],
    ids=["CartPole-v1", "Pendulum-v1", "keyed", "adaptive-coefficients"],
)
def test_a_run_cut_in_a_rollout_and_resumed_in_a_new_process_ends_with_the_same_bits(
    env_id: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    whole, trace = resume_run.build(env_id, **settings), resume_run.Trace()
    whole.learn(resume_run.TOTAL, callback=trace)
    expected = resume_run.outcome(whole)

    first, first_trace = resume_run.build(env_id, **settings), resume_run.Trace(stop_after=3)
    first.learn(resume_run.TOTAL, callback=first_trace)
    assert 0 < len(first_trace.steps) - first_trace.complete_steps < 16
    first.save(tmp_path / "model.zip")
    subprocess.run(
        [sys.executable, "-m", "tests.support.resume_run", tmp_path / "model.zip", env_id, tmp_path / "result.pt"],
        check=True,
        cwd=Path(__file__).parents[2],
    )
    resumed = torch.load(tmp_path / "result.pt", weights_only=True)

    assert differing(trace.steps, first_trace.steps[: first_trace.complete_steps] + resumed["trace"]) == []
    assert differing(expected, resumed["state"]) == []


def test_environments_without_the_contract_start_from_a_reset_and_one_warning_says_so(tmp_path: Path) -> None:
    def plain() -> DummyVecEnv:
        return make_vec_env("CartPole-v1", n_envs=2, seed=0)

    model = make_model(plain())
    model.learn(32)
    model.save(tmp_path / "model.zip")
    loaded = DistributionalPPO.load(tmp_path / "model.zip", env=plain(), device="cpu")
    with pytest.warns(ResumeWarning, match="start from a reset") as caught:
        loaded.learn(32, reset_num_timesteps=False)
    assert re.search(r"(?<!\.)\)?; training goes on", str(caught[0].message)), "a full stop in the sentence"
    assert len(caught) == 1
    assert loaded.num_timesteps == 64


class StatefulAfterReset(gym.Env[np.ndarray, int]):
    """Gives its state, which it has only after a reset."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, **_: Any) -> tuple[np.ndarray, dict[str, Any]]:
        self.position = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.position += 1 + int(action)
        return np.full(2, self.position / 10, np.float32), float(action), self.position >= 7, False, {}

    def get_state(self) -> dict[str, Any]:
        return {"position": self.position}

    def set_state(self, state: dict[str, Any]) -> None:
        self.position = state["position"]


@pytest.mark.parametrize("steps", [0, 32])
@pytest.mark.parametrize("env_given", ["to load", "by set_env"])
def test_environments_that_have_no_state_before_their_reset_resume_exactly(
    steps: int, env_given: str, tmp_path: Path
) -> None:
    def envs() -> DummyVecEnv:
        return make_vec_env(StatefulAfterReset, n_envs=2, wrapper_class=ResumableEnv)

    model = make_model(envs())
    if steps:
        model.learn(steps)
    model.save(tmp_path / "model.zip")
    model.learn(32, reset_num_timesteps=False)
    loaded = DistributionalPPO.load(
        tmp_path / "model.zip", env=envs() if env_given == "to load" else None, device="cpu"
    )
    if env_given == "by set_env":
        loaded.set_env(envs())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded.learn(32, reset_num_timesteps=False)
    assert differing(resume_run.outcome(model), resume_run.outcome(loaded)) == []


def test_another_number_of_environments_starts_from_a_reset_and_says_so(tmp_path: Path) -> None:
    model = make_model()
    model.learn(48)
    model.save(tmp_path / "model.zip")
    loaded = DistributionalPPO.load(tmp_path / "model.zip", env=make_envs(n_envs=2), device="cpu")
    with pytest.warns(ResumeWarning, match="another number of environments"):
        loaded.learn(32, reset_num_timesteps=False)


def test_after_environments_that_do_not_fit_the_right_ones_still_resume_exactly(tmp_path: Path) -> None:
    model = make_model()
    model.learn(48)
    model.save(tmp_path / "model.zip")
    model.learn(48, reset_num_timesteps=False)
    loaded = DistributionalPPO.load(tmp_path / "model.zip", env=make_envs(normalize=False), device="cpu")
    loaded.set_env(VecNormalize(make_envs(), norm_obs=False, norm_reward=False))
    with pytest.raises(StateError, match="this is VecNormalize of DummyVecEnv"):
        loaded.learn(48, reset_num_timesteps=False)
    loaded.set_env(make_envs())
    loaded.learn(48, reset_num_timesteps=False)
    assert differing(model.get_parameters(), loaded.get_parameters()) == []
