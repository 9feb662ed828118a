"""The adapter of skrl on a small training of PPO, with and without a schedule, and of DQN."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch

pytest.importorskip("skrl")

from skrl.agents.torch.dqn import DQN
from skrl.agents.torch.ppo import PPO
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.models.torch import CategoricalMixin, DeterministicMixin, Model
from skrl.resources.preprocessors.torch import RunningStandardScaler
from skrl.trainers.torch import SequentialTrainer

from rlverify.checks import Status
from rlverify.checks.adapters.skrl import SkrlAdapter
from tests.engine.libraries.findings import all_decided, checked, failed, loses

NOTHING = {"write_interval": 0, "checkpoint_interval": 0}
SCALER: dict[str, Any] = {
    "observation_preprocessor": RunningStandardScaler,
    "observation_preprocessor_kwargs": {"size": 4, "device": "cpu"},
}
HALVING: dict[str, Any] = {
    "learning_rate_scheduler": torch.optim.lr_scheduler.StepLR,
    "learning_rate_scheduler_kwargs": {"step_size": 3, "gamma": 0.5},
}


class Network(Model):  # type: ignore[misc]
    def __init__(self, env: Any, outputs: int) -> None:
        super().__init__(observation_space=env.observation_space, action_space=env.action_space, device="cpu")
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, outputs))

    def compute(self, inputs: Any, role: str = "") -> Any:  # noqa: ARG002
        return self.net(inputs["observations"]), {}


class Policy(CategoricalMixin, Network):  # type: ignore[misc]
    def __init__(self, env: Any) -> None:
        Network.__init__(self, env, 2)
        CategoricalMixin.__init__(self)


class Value(DeterministicMixin, Network):  # type: ignore[misc]
    def __init__(self, env: Any, outputs: int = 1) -> None:
        Network.__init__(self, env, outputs)
        DeterministicMixin.__init__(self)


def environment() -> Any:
    inner = gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")
    inner.reset(seed=0)
    env = wrap_env(inner, verbose=False)
    env._seed = 0  # that of the first reset; skrl.utils.set_seed() sets it for all
    return env


def trainer(kind: Any, env: Any, models: Any, size: int, **settings: Any) -> SequentialTrainer:
    spaces = {"observation_space": env.observation_space, "action_space": env.action_space}
    memory = RandomMemory(memory_size=size, num_envs=2, device="cpu")
    agent = kind(models=models, memory=memory, device="cpu", cfg={"experiment": NOTHING, **settings}, **spaces)
    quiet = {"headless": True, "disable_progressbar": True, "close_environment_at_exit": False}
    return SequentialTrainer(env=env, agents=agent, cfg=quiet)


def ppo(**settings: Any) -> SequentialTrainer:
    env = environment()
    models = {"policy": Policy(env), "value": Value(env)}
    return trainer(PPO, env, models, 16, rollouts=16, learning_epochs=2, mini_batches=2, **settings)


def dqn() -> SequentialTrainer:
    env = environment()
    models = {name: Value(env, 2) for name in ("q_network", "target_q_network")}
    return trainer(
        DQN, env, models, 200, batch_size=8, learning_starts=16, random_timesteps=8, target_update_interval=5
    )


class ForgetsOptimizer(SkrlAdapter):
    def load(self, folder: Path, fresh: Any) -> Any:
        model = super().load(folder, fresh)
        model.agents.optimizer.state.clear()
        return model


class ForgetsScaler(SkrlAdapter):
    def save(self, model: Any, folder: Path) -> None:
        super().save(model, folder)
        saved = torch.load(folder / "agent.pt")
        torch.save({**saved, "observation_preprocessor": self.fresh_state}, folder / "agent.pt")

    fresh_state = RunningStandardScaler(size=4, device="cpu").state_dict()


def test_every_check_of_ppo_is_decided() -> None:
    assert failed(all_decided(ppo).values()) == {"resume_is_exact", "artefact_runs_nothing_when_read"}


def test_dqn_begins_again_with_every_call_of_train() -> None:
    assert checked(dqn, "pieces_equal_whole").status is Status.FAIL


def test_dqn_trains_on_observations_of_nan() -> None:
    assert checked(dqn, "nan_observation_is_reported").status is Status.FAIL


def test_the_memory_and_the_counter_of_updates_are_not_saved() -> None:
    record = checked(dqn, "resume_is_exact")
    assert loses(record, "agents.memory")
    assert loses(record, "agents._update_counter")


def test_schedulers_are_not_saved() -> None:
    record = checked(lambda: ppo(**HALVING), "learning_rates_continue")
    assert record.status is Status.FAIL
    assert record.finding.where == "agents.optimizer.param_groups[0]['lr']"


def test_preprocessors_stay_in_the_mode_of_evaluation_after_a_load() -> None:
    record = checked(lambda: ppo(**SCALER), "modules_continue")
    assert record.finding.where == "agents._observation_preprocessor.training"


def test_a_forgotten_optimizer_is_found() -> None:
    assert not loses(checked(ppo, "resume_is_exact"), "agents.optimizer")
    assert loses(checked(ppo, "resume_is_exact", ForgetsOptimizer()), "agents.optimizer")


def test_a_forgotten_preprocessor_is_found() -> None:
    assert not loses(checked(lambda: ppo(**SCALER), "resume_is_exact"), "preprocessor")
    assert loses(checked(lambda: ppo(**SCALER), "resume_is_exact", ForgetsScaler()), "preprocessor")
