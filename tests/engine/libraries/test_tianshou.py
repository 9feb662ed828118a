"""The adapter of Tianshou on a small training of DQN, and of PPO with a schedule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch

pytest.importorskip("tianshou")

from tianshou.algorithm import DQN, PPO
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory, LRSchedulerFactory, LRSchedulerFactoryLinear
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OffPolicyTrainerParams, OnPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic

from rlverify.checks import Status
from rlverify.checks.adapters.tianshou import TianshouAdapter
from tests.engine.libraries.findings import all_decided, checked, failed, loses

QUIET: dict[str, Any] = {"test_step_num_episodes": 1, "show_progress": False, "verbose": False}


def collector(algorithm: Any) -> Collector[Any]:
    envs = DummyVectorEnv([lambda: gym.make("CartPole-v1")] * 2)
    envs.seed(0)
    return Collector(algorithm, envs, VectorReplayBuffer(1000, 2), exploration_noise=True)


def dqn() -> Any:
    net = Net(state_shape=(4,), action_shape=2, hidden_sizes=[16])
    policy = DiscreteQLearningPolicy(model=net, action_space=gym.spaces.Discrete(2, seed=0), eps_training=0.1)
    algorithm = DQN(policy=policy, optim=AdamOptimizerFactory(lr=1e-3), target_update_freq=3)
    sizes: dict[str, Any] = {"collection_step_num_env_steps": 16, "update_step_num_gradient_steps_per_sample": 0.25}
    return algorithm.create_trainer(
        OffPolicyTrainerParams(training_collector=collector(algorithm), batch_size=8, **sizes, **QUIET)
    )


class Halving(LRSchedulerFactory):
    def create_scheduler(self, optim: torch.optim.Optimizer) -> Any:
        return torch.optim.lr_scheduler.StepLR(optim, step_size=2, gamma=0.5)


def ppo(schedule: LRSchedulerFactory) -> Any:
    net = Net(state_shape=(4,), hidden_sizes=[16])
    actor = DiscreteActor(preprocess_net=net, action_shape=2)
    policy = DiscreteActorPolicy(actor=actor, action_space=gym.spaces.Discrete(2, seed=0))
    optim = AdamOptimizerFactory(lr=1e-3).with_lr_scheduler_factory(schedule)
    algorithm = PPO(policy=policy, critic=DiscreteCritic(preprocess_net=net), optim=optim)
    sizes: dict[str, Any] = {"collection_step_num_env_steps": 32, "update_step_num_repetitions": 2, "batch_size": 16}
    return algorithm.create_trainer(OnPolicyTrainerParams(training_collector=collector(algorithm), **sizes, **QUIET))


class ForgetsOptimizer(TianshouAdapter):
    def load(self, folder: Path, fresh: Any) -> Any:
        model = super().load(folder, fresh)
        for optimizer in self.optimizers(model):
            optimizer.state.clear()
        return model


class Shares(TianshouAdapter):
    def get_parameters(self, model: Any) -> Any:
        return model

    def set_parameters(self, model: Any, parameters: Any) -> None:
        model.algorithm.load_state_dict(parameters.algorithm.state_dict())  # whose optimizer shares its tensors


def test_every_check_of_dqn_is_decided() -> None:
    assert failed(all_decided(dqn).values()) == {"resume_is_exact"}


def test_the_counter_of_target_updates_is_not_saved() -> None:
    assert loses(checked(dqn, "resume_is_exact"), "algorithm._iter")


def test_schedulers_are_not_saved() -> None:
    assert loses(checked(lambda: ppo(Halving()), "resume_is_exact"), "algorithm.lr_schedulers[0].last_epoch")


def test_rates_of_the_linear_schedule_cannot_be_read_as_weights_only() -> None:
    linear = LRSchedulerFactoryLinear(max_epochs=10, epoch_num_steps=64, collection_step_num_env_steps=32)
    record = checked(lambda: ppo(linear), "load_returns_a_model")
    assert record.status is Status.FAIL
    assert "Weights only load failed" in record.finding.seen


def test_a_forgotten_optimizer_is_found() -> None:
    assert not loses(checked(dqn, "resume_is_exact"), "_optim.")
    assert loses(checked(dqn, "resume_is_exact", ForgetsOptimizer()), "_optim.")


def test_shared_tensors_are_found() -> None:
    assert checked(dqn, "set_parameters_copies").status is Status.PASS
    assert checked(dqn, "set_parameters_copies", Shares()).status is Status.FAIL
