"""Updates of a run from its first, beside those of sb3-contrib's RecurrentPPO; and the rollouts alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.env_util import make_vec_env

from benchmarks.side_by_side import Target, compare, profile
from rlcore import DistributionalPPO

TARGETS = {"CartPole-v1": 4.3, "Pendulum-v1": 5.3}
SETTINGS: dict[str, Any] = {"n_steps": 128, "batch_size": 256, "n_epochs": 10, "seed": 0, "device": "cpu"}
POLICY = {"lstm_hidden_size": 256}
UPDATES = 20


def pair(env_id: str) -> tuple[DistributionalPPO, RecurrentPPO]:
    """Ours with all that it has, and the reference, on 8 environments each."""
    ours = DistributionalPPO(
        "MlpLstmPolicy",
        make_vec_env(env_id, n_envs=8, seed=0),
        optimizer_class="adaptive_upgd",
        n_critics=2,
        variance_gradient_scaling=True,
        policy_kwargs=dict(POLICY),
        **SETTINGS,
    )
    return ours, RecurrentPPO(
        "MlpLstmPolicy", make_vec_env(env_id, n_envs=8, seed=0), policy_kwargs=dict(POLICY), **SETTINGS
    )


def update(model: Any) -> None:
    """One rollout and the training on it."""
    model.learn(model.n_steps * model.n_envs, reset_num_timesteps=False)


def collecting(model: Any) -> Callable[[], object]:
    """What fills the model's buffer with one rollout."""
    callback = model._setup_learn(10**9)[1]
    return lambda: model.collect_rollouts(model.env, callback, model.rollout_buffer, model.n_steps)


@pytest.mark.parametrize("env_id", TARGETS)
def bench_update(benchmark: Any, env_id: str) -> None:
    ours, reference = pair(env_id)

    def floor() -> None:
        """The LSTMs over the minibatches that ours has just trained on, forwards and backwards."""
        policy = ours.policy
        for _ in range(ours.n_epochs):
            for samples in ours.rollout_buffer.get(ours.batch_size):
                features = samples.observations.flatten(1)
                for lstm, states in zip((policy.lstm_actor, policy.lstm_critic), samples.lstm_states, strict=True):
                    outputs, _ = policy._process_sequence(features, states, samples.episode_starts, lstm)
                    outputs.sum().backward()

    target = Target(TARGETS[env_id], "at least", "the LSTMs alone, over the same padded sequences")
    compare(benchmark, lambda: update(ours), lambda: update(reference), target, rounds=UPDATES, floor=floor, warm=False)


@pytest.mark.parametrize("env_id", TARGETS)
def bench_rollout(benchmark: Any, env_id: str) -> None:
    collect, collect_reference = map(collecting, pair(env_id))
    steps = make_vec_env(env_id, n_envs=8, seed=0)
    steps.reset()
    actions = [np.stack([steps.action_space.sample() for _ in range(8)]) for _ in range(SETTINGS["n_steps"])]

    def floor() -> None:
        for each in actions:
            steps.step(each)

    target = Target(1.0, "at least", "the environments' own steps, under random actions")
    compare(benchmark, collect, collect_reference, target, rounds=20, floor=floor)


def bench_profile(benchmark: Any) -> None:
    models = {env_id: pair(env_id)[0] for env_id in TARGETS}
    updates = {env_id: partial(update, model) for env_id, model in models.items()}
    rollouts = {f"{env_id}, the rollout": collecting(model) for env_id, model in models.items()}
    profile(benchmark, updates | rollouts, repetitions=2, top=12)
