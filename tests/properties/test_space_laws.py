"""What holds for every combination of observation and action space that the table of cases names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv

from rlcore import DistributionalPPO, ResumableEnv
from tests.support.resume_run import outcome
from tests.support.space_cases import CASES, SpaceCase
from tests.support.training import differing, make_model, tensors_in

ROLLOUT = 2 * 6

each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def envs(case: SpaceCase, seed: int = 0) -> VecEnv:
    return make_vec_env(case.env, n_envs=2, seed=seed, wrapper_class=ResumableEnv)


def model_of(case: SpaceCase) -> DistributionalPPO:
    policy_kwargs = {"lstm_hidden_size": 4, "net_arch": [4], **case.policy_kwargs}
    return make_model(
        envs(case), case.policy, n_steps=6, batch_size=7, n_epochs=1, ent_coef=0.01, policy_kwargs=policy_kwargs
    )


@each_case
def test_learning_moves_actor_and_critics_and_keeps_everything_finite(case: SpaceCase) -> None:
    model = model_of(case)
    before = model.get_parameters()["policy"]
    model.learn(2 * ROLLOUT)
    after = model.get_parameters()
    moved = {name for name, tensor in before.items() if not torch.equal(tensor, after["policy"][name])}
    assert any(name.startswith("action_net") for name in moved)
    assert any(name.startswith("lstm_actor") for name in moved)
    assert any(name.startswith("value_net") for name in moved)
    assert all(bool(tensor.isfinite().all()) for tensor in tensors_in(after))


@each_case
def test_the_policy_gives_what_it_did_the_probability_that_the_rollout_recorded(case: SpaceCase) -> None:
    model = model_of(case)
    ratios: list[torch.Tensor] = []

    def measure() -> None:
        for samples in model.rollout_buffer.get(7):
            mask = samples.mask > 0
            flat = samples.actions.flatten() if case.actions.shape == () else samples.actions
            observations: Any = samples.observations
            _, log_prob, entropy = model.policy.evaluate_actions(
                observations, flat, samples.lstm_states, samples.episode_starts
            )
            assert log_prob.shape == entropy.shape == samples.mask.shape
            assert bool(log_prob.isfinite().all())
            ratios.append((log_prob - samples.old_log_prob)[mask].exp())

    model.train = measure  # type: ignore[method-assign]
    model.learn(ROLLOUT)
    measured = torch.cat(ratios)
    assert len(measured) == ROLLOUT
    assert measured.tolist() == pytest.approx([1.0] * ROLLOUT, rel=1e-4)


@each_case
def test_a_loaded_model_acts_as_the_saved_one_within_the_space(case: SpaceCase, tmp_path: Path) -> None:
    model = model_of(case)
    model.learn(ROLLOUT)
    model.save(tmp_path / "model.zip")
    loaded = DistributionalPPO.load(tmp_path / "model.zip", device="cpu")
    assert type(loaded.policy) is type(model.policy)
    observations: Any = envs(case, seed=3).reset()
    state: Any = None
    loaded_state: Any = None
    for _ in range(3):
        actions, state = model.predict(observations, state, deterministic=True)
        same, loaded_state = loaded.predict(observations, loaded_state, deterministic=True)
        assert np.array_equal(actions, same)
        assert all(case.actions.contains(action) for action in actions)


@each_case
def test_a_saved_run_goes_on_as_if_it_had_not_been_cut(case: SpaceCase, tmp_path: Path) -> None:
    model = model_of(case)
    model.learn(ROLLOUT)
    model.save(tmp_path / "model.zip")
    model.learn(ROLLOUT, reset_num_timesteps=False)
    resumed = DistributionalPPO.load(tmp_path / "model.zip", env=envs(case, seed=9), device="cpu")
    resumed.learn(ROLLOUT, reset_num_timesteps=False)
    assert differing(outcome(model), outcome(resumed)) == []
