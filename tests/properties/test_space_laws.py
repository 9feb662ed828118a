"""What holds for every combination of observation and action space that the table of cases names."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True)
class Trained:
    """A model's parameters at first, a file of it after one rollout, its actions then, and its state after two."""

    case: SpaceCase
    initial: dict[str, torch.Tensor]
    file: Path
    actions: list[Any]
    final: dict[str, Any]


def envs(case: SpaceCase, seed: int = 0) -> VecEnv:
    return make_vec_env(case.env, n_envs=2, seed=seed, wrapper_class=ResumableEnv)


def model_of(case: SpaceCase) -> DistributionalPPO:
    policy_kwargs = {"lstm_hidden_size": 4, "net_arch": [4], **case.policy_kwargs}
    settings: dict[str, Any] = {"n_steps": 6, "batch_size": 7, "n_epochs": 1, "ent_coef": 0.01}
    return make_model(envs(case), case.policy, policy_kwargs=policy_kwargs, **settings)


def acts(model: DistributionalPPO, case: SpaceCase) -> list[Any]:
    """What the model does in three steps of which each remembers the one before."""
    observations: Any = envs(case, seed=3).reset()
    state: Any = None
    done = []
    for _ in range(3):
        actions, state = model.predict(observations, state, deterministic=True)
        done.append(actions)
    return done


@pytest.fixture(scope="module", params=CASES.values(), ids=CASES.keys())
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    case: SpaceCase = request.param
    model, file = model_of(case), tmp_path_factory.mktemp("model") / "model.zip"
    initial = model.get_parameters()["policy"]
    model.learn(ROLLOUT)
    model.save(file)
    actions = acts(model, case)
    model.learn(ROLLOUT, reset_num_timesteps=False)
    return Trained(case, initial, file, actions, outcome(model))


def test_learning_moves_actor_and_critics_and_keeps_everything_finite(trained: Trained) -> None:
    policy = trained.final["policy"]
    moved = {name for name, tensor in trained.initial.items() if not torch.equal(tensor, policy[name])}
    for module in ("action_net", "lstm_actor", "value_net"):
        assert any(name.startswith(module) for name in moved), module
    assert all(bool(tensor.isfinite().all()) for tensor in tensors_in(trained.final))


def test_a_loaded_model_acts_as_the_saved_one_within_the_space(trained: Trained) -> None:
    loaded = DistributionalPPO.load(trained.file, device="cpu")
    assert all(np.array_equal(*pair) for pair in zip(acts(loaded, trained.case), trained.actions, strict=True))
    assert all(trained.case.actions.contains(action) for actions in trained.actions for action in actions)


def test_a_saved_run_goes_on_as_if_it_had_not_been_cut(trained: Trained) -> None:
    resumed = DistributionalPPO.load(trained.file, env=envs(trained.case, seed=9), device="cpu")
    resumed.learn(ROLLOUT, reset_num_timesteps=False)
    assert differing(trained.final, outcome(resumed)) == []


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_policy_gives_what_it_did_the_probability_that_the_rollout_recorded(case: SpaceCase) -> None:
    model = model_of(case)
    ratios: list[torch.Tensor] = []

    def measure() -> None:
        for samples in model.rollout_buffer.get(7):
            flat = samples.actions.flatten() if case.actions.shape == () else samples.actions
            observations: Any = samples.observations
            _, log_prob, entropy = model.policy.evaluate_actions(
                observations, flat, samples.lstm_states, samples.episode_starts
            )
            assert log_prob.shape == entropy.shape == samples.mask.shape
            assert bool(log_prob.isfinite().all())
            ratios.append((log_prob - samples.old_log_prob)[samples.mask > 0].exp())

    model.train = measure  # type: ignore[method-assign]
    model.learn(ROLLOUT)
    assert torch.cat(ratios).tolist() == pytest.approx([1.0] * ROLLOUT, rel=1e-4)
